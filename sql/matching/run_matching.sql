-- run_matching: how the hits of each run are matched with expected chunks, and why.
-- columns: run_id, chunker_version, version_source, policy_hash, is_current, is_earlier (as in run_chunkers), n_expected (labels that
--          name a chunk), n_foreign (those that are chunks of another chunker or of another index), n_unclear (those whose
--          id was reused for other text, if it is unknown which of the two the run means), owner (the chunker version of a
--          foreign chunk, or null), is_nameless (most of the run's hits do not name a chunk), matching ('exact': by id,
--          'span': by document and span, 'none': nothing can decide)
-- kind: table
-- shown: yes
-- variants: alike, if it is known without reading any hit that ids are comparable, or that this cannot be known
--
-- An expected chunk is a run's own if a place of that id is known under the run's version and policy, and the label means
-- that place. For a run of the current index, that place must be in the table now; for a run of an earlier index, it must
-- not be known from the current table alone. The chunk is foreign if it is known, but not as the run's own; or if the table
-- contains the run's chunks and it is not among them. If nothing is known, it is neither.
-- Such a run cannot hit foreign chunks by id: if most are foreign, spans decide. Spans also decide if most hits do not name
-- a chunk. If most ids are ambiguous, neither ids nor places can decide. Runs that are compared are matched in the same
-- way.
WITH generations AS (
    SELECT DISTINCT chunker_version, policy_hash, is_current, is_earlier, names_reused, is_unclear
    FROM run_chunkers
    WHERE chunker_version IS NOT NULL
),

judged AS (
    SELECT
        g.chunker_version,
        g.policy_hash,
        g.is_current,
        g.is_earlier,
        g.names_reused,
        g.is_unclear,
        e.query_id,
        e.chunk_id,
        MAX(
            CASE
                WHEN k.chunk_id IS NULL OR k.chunker_version <> g.chunker_version              THEN 0
                WHEN k.policy_hash <> '' AND k.policy_hash <> COALESCE(g.policy_hash, k.policy_hash) THEN 0
                WHEN g.is_current AND NOT k.is_in_table                                        THEN 0
                -- A chunk that has not moved belongs to both indexes.
                WHEN g.is_earlier AND k.is_in_table AND NOT g.names_reused                     THEN 0
                WHEN t.chunk_id IS NULL                                                        THEN 1
                -- Known under the same name but at another place: the id was reused.
                WHEN t.chunker_version = k.chunker_version AND t.policy_hash = k.policy_hash
                    THEN CASE WHEN t.doc_id <> k.doc_id OR tp.place_text <> kp.place_text THEN 0 ELSE 1 END
                WHEN t.spans_text = k.spans_text AND t.doc_id = k.doc_id                       THEN 1
                ELSE 0
            END
        )                        AS is_own,
        MAX(k.chunk_id)          AS known_id,
        MAX(CASE WHEN g.is_unclear AND u.chunk_id IS NOT NULL THEN 1 ELSE 0 END) AS unclear,
        -- Another version is more informative than an earlier index of the same one.
        COALESCE(
            MAX(CASE WHEN k.chunker_version <> g.chunker_version THEN k.chunker_version END),
            MAX(k.chunker_version)
        )                        AS owner
    FROM generations AS g
    CROSS JOIN expected_chunks AS e
    LEFT JOIN label_versions AS k ON k.chunk_id = e.chunk_id
    LEFT JOIN label_places AS t ON t.chunk_id = e.chunk_id
    LEFT JOIN table_places AS tp ON tp.spans_text = t.spans_text
    LEFT JOIN table_places AS kp ON kp.spans_text = k.spans_text
    LEFT JOIN (SELECT DISTINCT chunk_id, chunker_version FROM reused_chunks) AS u
        ON  u.chunk_id = e.chunk_id
        AND u.chunker_version = g.chunker_version
    GROUP BY
        g.chunker_version, g.policy_hash, g.is_current, g.is_earlier, g.names_reused, g.is_unclear, e.query_id, e.chunk_id
),

foreign_labels AS (
    SELECT
        chunker_version,
        policy_hash,
        is_current,
        is_earlier,
        names_reused,
        is_unclear,
        COUNT(*)                                                                            AS n_expected,
        COUNT(
            CASE WHEN unclear = 0 AND is_own = 0 AND (known_id IS NOT NULL OR is_current) THEN 1 END
        )                                                                                   AS n_foreign,
        SUM(unclear)                                                                        AS n_unclear,
        MAX(CASE WHEN unclear = 0 AND is_own = 0 THEN owner END)                            AS owner
    FROM judged
    GROUP BY chunker_version, policy_hash, is_current, is_earlier, names_reused, is_unclear
),

nameless AS (
    SELECT run_id
    FROM nameless_hits
    WHERE 2 * n_nameless > n_hits AND (SELECT COUNT(*) FROM expected_chunks) > 0
),

counted AS (
    SELECT
        c.run_id,
        c.chunker_version,
        c.version_source,
        c.policy_hash,
        c.is_current,
        c.is_earlier,
        COALESCE(f.n_expected, 0)                 AS n_expected,
        COALESCE(f.n_foreign, 0)                  AS n_foreign,
        COALESCE(f.n_unclear, 0)                  AS n_unclear,
        f.owner,
        n.run_id IS NOT NULL                      AS is_nameless,
        n.run_id IS NOT NULL OR COALESCE(2 * f.n_foreign > f.n_expected, false) AS is_foreign,
        COALESCE(2 * f.n_unclear > f.n_expected, false) AS is_lost
    FROM run_chunkers AS c
    LEFT JOIN nameless AS n ON n.run_id = c.run_id
    LEFT JOIN foreign_labels AS f
        ON  f.chunker_version = c.chunker_version
        AND f.policy_hash IS NOT DISTINCT FROM c.policy_hash
        AND f.is_current = c.is_current
        AND f.is_earlier = c.is_earlier
        AND f.names_reused = c.names_reused
        AND f.is_unclear = c.is_unclear
),

company AS (
    SELECT
        COUNT(DISTINCT COALESCE(chunker_version, ''))    AS n_versions,
        COUNT(CASE WHEN is_foreign THEN 1 END)           AS n_foreign_runs,
        COUNT(CASE WHEN is_lost THEN 1 END)              AS n_lost_runs
    FROM counted
)

SELECT
    c.run_id,
    c.chunker_version,
    c.version_source,
    c.policy_hash,
    c.is_current,
    c.is_earlier,
    c.n_expected,
    c.n_foreign,
    c.n_unclear,
    c.owner,
    c.is_nameless,
    CASE
        WHEN s.match <> 'auto'                                                       THEN s.match
        WHEN c.is_lost OR (s.together AND y.n_lost_runs > 0)                         THEN 'none'
        WHEN c.is_foreign                                                            THEN 'span'
        WHEN s.together AND (y.n_versions > 1 OR y.n_foreign_runs > 0)               THEN 'span'
        ELSE                                                                              'exact'
    END AS matching
FROM counted AS c
CROSS JOIN company AS y
CROSS JOIN settings AS s
