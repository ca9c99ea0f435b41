-- run_chunkers: the chunker that made the chunks of each run: as named by its configuration; otherwise by its hits, if they
-- agree; otherwise by the tables for the chunks that its hits name, if those agree.
-- columns: run_id, chunker_version (null: not known), version_source ('config', 'hits', 'tables'; null: not known),
--          policy_hash (null: not known), is_current (the table `chunks` contains the chunks of this version, including
--          most of those that the run's hits name), is_earlier (it contains chunks of this version, but most of those that
--          the hits name are no longer in it), names_reused (its hits name ids that the table reuses for other text),
--          is_unclear (likewise, and it is unknown which text is meant)
-- kind: table
-- variants: configured, if the configurations state everything that is needed
--
-- If ids were reused, the index of a run is determined by the hits that state their own place; failing that, a run that
-- names a chunk that no longer exists belongs to an earlier index.
WITH named AS (
    SELECT DISTINCT r.run_id, h.chunk_id, h.chunker_version
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    WHERE h.chunk_id IS NOT NULL OR h.chunker_version IS NOT NULL
),

named_chunks AS (
    SELECT DISTINCT run_id, chunk_id FROM named WHERE chunk_id IS NOT NULL
),

said AS (
    SELECT run_id, MIN(chunker_version) AS chunker_version, COUNT(DISTINCT chunker_version) AS n
    FROM named
    WHERE chunker_version IS NOT NULL
    GROUP BY run_id
),

listed AS (
    SELECT c.run_id, MIN(k.chunker_version) AS chunker_version, COUNT(DISTINCT k.chunker_version) AS n
    FROM named_chunks AS c
    JOIN indexed_places AS k ON k.chunk_id = c.chunk_id
    GROUP BY c.run_id
),

versions AS (
    SELECT
        u.run_id,
        CASE
            WHEN u.chunker_version IS NOT NULL THEN u.chunker_version
            WHEN s.n IS NOT NULL               THEN CASE WHEN s.n = 1 THEN s.chunker_version END
            WHEN l.n = 1                       THEN l.chunker_version
        END AS chunker_version,
        CASE
            WHEN u.chunker_version IS NOT NULL THEN 'config'
            WHEN s.n = 1                       THEN 'hits'
            WHEN s.n IS NULL AND l.n = 1       THEN 'tables'
        END AS version_source,
        u.policy_hash
    FROM runs AS u
    LEFT JOIN said AS s ON s.run_id = u.run_id
    LEFT JOIN listed AS l ON l.run_id = u.run_id
),

-- A chunk that is known under several policies does not show which of them a run used.
sole_policies AS (
    SELECT i.chunk_id, i.chunker_version, MIN(i.policy_hash) AS policy_hash
    FROM indexed_places AS i
    GROUP BY i.chunk_id, i.chunker_version
    HAVING COUNT(DISTINCT i.policy_hash) = 1
),

policies AS (
    SELECT v.run_id, MIN(p.policy_hash) AS policy_hash, COUNT(DISTINCT p.policy_hash) AS n
    FROM versions AS v
    JOIN named_chunks AS c ON c.run_id = v.run_id
    JOIN sole_policies AS p ON p.chunk_id = c.chunk_id AND p.chunker_version = v.chunker_version
    GROUP BY v.run_id
),

current_chunks AS (
    SELECT DISTINCT chunk_id, chunker_version FROM chunks
),

current_versions AS (
    SELECT DISTINCT chunker_version FROM chunks
),

earlier_chunks AS (
    SELECT chunk_id, chunker_version
    FROM indexed_places
    GROUP BY chunk_id, chunker_version
    HAVING MAX(CASE WHEN is_in_table THEN 1 ELSE 0 END) = 0
),

found AS (
    SELECT
        v.run_id,
        COUNT(*)          AS n_chunks,
        COUNT(t.chunk_id) AS n_current,
        COUNT(e.chunk_id) AS n_earlier,
        COUNT(u.chunk_id) AS n_reused
    FROM versions AS v
    JOIN named_chunks AS c ON c.run_id = v.run_id
    LEFT JOIN current_chunks AS t ON t.chunk_id = c.chunk_id AND t.chunker_version = v.chunker_version
    LEFT JOIN earlier_chunks AS e ON e.chunk_id = c.chunk_id AND e.chunker_version = v.chunker_version
    LEFT JOIN (
        SELECT DISTINCT chunk_id, chunker_version FROM reused_chunks
    ) AS u ON u.chunk_id = c.chunk_id AND u.chunker_version = v.chunker_version
    GROUP BY v.run_id
),

told AS (
    SELECT
        run_id,
        chunker_version,
        COUNT(CASE WHEN is_as_now THEN 1 END)     AS n_now,
        COUNT(CASE WHEN NOT is_as_now THEN 1 END) AS n_before
    FROM told_places
    GROUP BY run_id, chunker_version
)

SELECT
    v.run_id,
    v.chunker_version,
    v.version_source,
    COALESCE(v.policy_hash, CASE WHEN p.n = 1 THEN NULLIF(p.policy_hash, '') END) AS policy_hash,
    w.chunker_version IS NOT NULL AND CASE
        WHEN t.run_id IS NOT NULL                  THEN t.n_now >= t.n_before
        WHEN f.n_reused > 0 AND f.n_earlier > 0    THEN false
        ELSE COALESCE(2 * f.n_current >= f.n_chunks, true)
    END AS is_current,
    w.chunker_version IS NOT NULL AND CASE
        WHEN t.run_id IS NOT NULL                  THEN t.n_now < t.n_before
        WHEN f.n_reused > 0 AND f.n_earlier > 0    THEN true
        ELSE COALESCE(2 * f.n_earlier > f.n_chunks, false)
    END AS is_earlier,
    COALESCE(f.n_reused > 0, false)                                          AS names_reused,
    t.run_id IS NULL AND COALESCE(f.n_reused > 0 AND f.n_earlier = 0, false) AS is_unclear
FROM versions AS v
LEFT JOIN policies AS p ON p.run_id = v.run_id
LEFT JOIN found AS f ON f.run_id = v.run_id
LEFT JOIN told AS t ON t.run_id = v.run_id AND t.chunker_version = v.chunker_version
LEFT JOIN current_versions AS w ON w.chunker_version = v.chunker_version
