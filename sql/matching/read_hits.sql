-- read_hits: for queries that expect chunks or spans, the hits that a reader goes through up to the first of them, or all
-- hits if none is found, each chunk once.
-- columns: result_no, position, tokens (the hit's own count, otherwise the tables' estimate; null: unknown)
-- kind: table
--
-- No two hits of a ranking have the same rank. Sizes are looked up before repeats are left out: DuckDB expects that leaving
-- out leaves little, and would then build its hash table from all the hits instead of from the few chunks.
WITH first_correct AS (
    SELECT result_no, MIN(rank) AS rank
    FROM chunk_matches
    GROUP BY result_no
),

asked AS (
    SELECT r.result_no, r.run_id, f.rank AS last_rank
    FROM results AS r
    JOIN queries AS q ON q.query_id = r.query_id AND q.n_expected_chunks + q.n_expected_spans > 0
    LEFT JOIN first_correct AS f ON f.result_no = r.result_no
),

sized AS (
    SELECT h.result_no, h.position, COALESCE(h.token_count, k.tokens) AS tokens
    FROM hits AS h
    JOIN asked AS a ON a.result_no = h.result_no
    JOIN run_chunkers AS u ON u.run_id = a.run_id
    LEFT JOIN chosen_places AS k
        ON  k.chunk_id = h.chunk_id
        AND k.chunker_version IS NOT DISTINCT FROM COALESCE(h.chunker_version, u.chunker_version)
        AND k.policy_hash IS NOT DISTINCT FROM u.policy_hash
        AND k.is_earlier = u.is_earlier
    WHERE a.last_rank IS NULL OR h.rank <= a.last_rank
),

appearances AS (
    SELECT
        h.result_no,
        h.position,
        ROW_NUMBER() OVER (PARTITION BY h.result_no, h.chunk_id ORDER BY h.rank) AS appearance
    FROM repeated_hits AS p
    JOIN hits AS h ON h.result_no = p.result_no AND h.chunk_id = p.chunk_id
)

SELECT s.result_no, s.position, s.tokens
FROM sized AS s
LEFT JOIN appearances AS p
    ON  p.result_no = s.result_no
    AND p.position = s.position
    AND p.appearance > 1
WHERE p.result_no IS NULL
