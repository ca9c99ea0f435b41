-- run_matching: how the hits of each run are matched with expected chunks, and why.
-- columns: run_id, chunker_version, version_source, policy_hash, is_current, is_earlier (as in run_chunkers), n_expected (labels that
--          name a chunk), n_foreign (those that are chunks of another chunker or of another index), owner (a chunker
--          version that such a chunk is of, or null), matching ('exact': by id, 'span': by document and span)
-- kind: table
--
-- An expected chunk is a run's own when a place of that id is known under the run's version and policy (in the table as
-- it is now where the run was made with that, and not only there where the run was made with an earlier one), and the
-- label means that place. It is foreign when it is known, and not as
-- the run's own; or when the table holds the run's chunks and it is not among them. Where nothing is known, nothing is
-- said. By id such a run cannot hit foreign chunks: where most are, spans decide. Runs that are compared are matched
-- the same way.
WITH generations AS (
    SELECT DISTINCT chunker_version, policy_hash, is_current, is_earlier
    FROM run_chunkers
    WHERE chunker_version IS NOT NULL
),

judged AS (
    SELECT
        g.chunker_version,
        g.policy_hash,
        g.is_current,
        g.is_earlier,
        e.query_id,
        e.chunk_id,
        MAX(
            CASE
                WHEN k.chunk_id IS NULL OR k.chunker_version <> g.chunker_version              THEN 0
                WHEN k.policy_hash <> '' AND k.policy_hash <> COALESCE(g.policy_hash, k.policy_hash) THEN 0
                WHEN g.is_current AND NOT k.is_in_table                                        THEN 0
                WHEN g.is_earlier AND k.is_in_table                                            THEN 0
                WHEN t.chunk_id IS NULL                                                        THEN 1
                WHEN t.chunker_version = k.chunker_version AND t.policy_hash = k.policy_hash   THEN 1
                WHEN t.spans_text = k.spans_text AND t.doc_id = k.doc_id                       THEN 1
                ELSE 0
            END
        )                        AS is_own,
        MAX(k.chunk_id)          AS known_id,
        -- Another version says more than an earlier index of the same one.
        COALESCE(
            MAX(CASE WHEN k.chunker_version <> g.chunker_version THEN k.chunker_version END),
            MAX(k.chunker_version)
        )                        AS owner
    FROM generations AS g
    CROSS JOIN expected_chunks AS e
    LEFT JOIN label_versions AS k ON k.chunk_id = e.chunk_id
    LEFT JOIN label_places AS t ON t.chunk_id = e.chunk_id
    GROUP BY g.chunker_version, g.policy_hash, g.is_current, g.is_earlier, e.query_id, e.chunk_id
),

foreign_labels AS (
    SELECT
        chunker_version,
        policy_hash,
        is_current,
        is_earlier,
        COUNT(*)                                                                            AS n_expected,
        COUNT(CASE WHEN is_own = 0 AND (known_id IS NOT NULL OR is_current) THEN 1 END)     AS n_foreign,
        MAX(CASE WHEN is_own = 0 THEN owner END)                                            AS owner
    FROM judged
    GROUP BY chunker_version, policy_hash, is_current, is_earlier
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
        f.owner,
        COALESCE(2 * f.n_foreign > f.n_expected, false) AS is_foreign
    FROM run_chunkers AS c
    LEFT JOIN foreign_labels AS f
        ON  f.chunker_version = c.chunker_version
        AND f.policy_hash IS NOT DISTINCT FROM c.policy_hash
        AND f.is_current = c.is_current
        AND f.is_earlier = c.is_earlier
),

company AS (
    SELECT
        COUNT(DISTINCT COALESCE(chunker_version, ''))    AS n_versions,
        COUNT(CASE WHEN is_foreign THEN 1 END)           AS n_foreign_runs
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
    c.owner,
    CASE
        WHEN s.match <> 'auto'                                                       THEN s.match
        WHEN c.is_foreign                                                            THEN 'span'
        WHEN s.together AND (y.n_versions > 1 OR y.n_foreign_runs > 0)               THEN 'span'
        ELSE                                                                              'exact'
    END AS matching
FROM counted AS c
CROSS JOIN company AS y
CROSS JOIN settings AS s
