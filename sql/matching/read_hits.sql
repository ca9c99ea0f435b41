-- read_hits: for queries that expect chunks or spans, the hits that a reader goes through up to the first of them, or all
-- hits if none is found, each chunk once.
-- columns: result_no, position, tokens (the hit's own count, otherwise the tables' estimate; null: unknown)
-- kind: table
WITH first_correct AS (
    SELECT result_no, rank, position
    FROM (
        SELECT
            result_no,
            rank,
            position,
            ROW_NUMBER() OVER (PARTITION BY result_no ORDER BY rank, position) AS place
        FROM chunk_matches
    ) AS ordered
    WHERE place = 1
),

asked AS (
    SELECT r.result_no, r.run_id, f.rank, f.position
    FROM results AS r
    JOIN queries AS q ON q.query_id = r.query_id AND q.n_expected_chunks + q.n_expected_spans > 0
    LEFT JOIN first_correct AS f ON f.result_no = r.result_no
),

read AS (
    SELECT h.result_no, a.run_id, h.position, h.rank, h.chunk_id, h.chunker_version, h.token_count
    FROM hits AS h
    JOIN asked AS a ON a.result_no = h.result_no
    WHERE a.rank IS NULL
       OR h.rank < a.rank
       OR (h.rank = a.rank AND h.position <= a.position)
),

-- Only duplicates need a second step: the position of the first appearance.
appearances AS (
    SELECT
        r.*,
        ROW_NUMBER() OVER (PARTITION BY r.result_no, r.chunk_id ORDER BY r.rank, r.position) AS appearance
    FROM read AS r
    JOIN repeated_hits AS p ON p.result_no = r.result_no AND p.chunk_id = r.chunk_id
),

once AS (
    SELECT r.result_no, r.run_id, r.position, r.chunk_id, r.chunker_version, r.token_count
    FROM read AS r
    LEFT JOIN repeated_hits AS p ON p.result_no = r.result_no AND p.chunk_id = r.chunk_id
    WHERE p.chunk_id IS NULL

    UNION ALL
    SELECT result_no, run_id, position, chunk_id, chunker_version, token_count
    FROM appearances
    WHERE appearance = 1
)

SELECT
    o.result_no,
    o.position,
    COALESCE(o.token_count, k.tokens) AS tokens
FROM once AS o
JOIN run_chunkers AS u ON u.run_id = o.run_id
LEFT JOIN chosen_places AS k
    ON  k.chunk_id = o.chunk_id
    AND k.chunker_version IS NOT DISTINCT FROM COALESCE(o.chunker_version, u.chunker_version)
    AND k.policy_hash IS NOT DISTINCT FROM u.policy_hash
    AND k.is_earlier = u.is_earlier
