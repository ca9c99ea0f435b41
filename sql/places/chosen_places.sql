-- chosen_places: the data of a chunk in the tables, as meant by a run of one chunker version and policy.
-- columns: chunker_version (null: unknown, any matches), policy_hash (null: not known), is_earlier (the run is of an
--          earlier index), chunk_id, doc_id, spans_text, tokens (null: not known)
-- kind: table
--
-- Several policies may use an id. Among those with a known place, the run's own comes first, then what the table contains
-- now (for a run of an earlier index: what it no longer contains), then what was seen first.
WITH generations AS (
    SELECT chunker_version, policy_hash, is_earlier FROM run_chunkers
    UNION
    -- A hit may name another chunker than its run does.
    SELECT h.chunker_version, c.policy_hash, c.is_earlier
    FROM (SELECT DISTINCT chunker_version FROM hits WHERE chunker_version IS NOT NULL) AS h
    CROSS JOIN (SELECT DISTINCT policy_hash, is_earlier FROM run_chunkers) AS c
),

candidates AS (
    SELECT
        g.chunker_version,
        g.policy_hash,
        g.is_earlier,
        k.chunk_id,
        k.doc_id,
        k.spans_text,
        k.tokens,
        ROW_NUMBER() OVER (
            PARTITION BY g.chunker_version, g.policy_hash, g.is_earlier, k.chunk_id
            ORDER BY
                CASE WHEN k.spans_text IS NULL THEN 1 ELSE 0 END,
                CASE WHEN k.policy_hash = g.policy_hash THEN 0 ELSE 1 END,
                CASE WHEN k.is_in_table = g.is_earlier THEN 1 ELSE 0 END,
                k.age
        ) AS choice
    FROM generations AS g
    JOIN indexed_places AS k ON k.chunker_version = COALESCE(g.chunker_version, k.chunker_version)
)

SELECT chunker_version, policy_hash, is_earlier, chunk_id, doc_id, spans_text, tokens
FROM candidates
WHERE choice = 1
