-- reading_cost: the number of tokens of text that a reader goes through up to the first expected chunk.
-- columns: result_no, tokens_to_hit (null: none was found, or a size is unknown), sizes_known (of all hits up to there)
-- kind: table
-- variants: none, if no chunk or place is expected, or no hit has a known size
--
-- If neither the hit nor the tables state the number of tokens, it is a quarter of the characters. Sums of integers do not
-- depend on the order.
WITH sized AS (
    SELECT h.result_no, COALESCE(h.tokens, t.characters / CAST(4 AS DOUBLE)) AS tokens
    FROM read_hits AS h
    LEFT JOIN hit_texts AS t ON t.result_no = h.result_no AND t.position = h.position
),

totals AS (
    SELECT
        result_no,
        COUNT(*) = COUNT(tokens) AS sizes_known,
        -- In hundredths.
        SUM(CASE WHEN tokens IS NOT NULL THEN CAST(FLOOR(LEAST(tokens, 1e12) * 100 + 0.5) AS DECIMAL(18, 0)) END) AS tokens
    FROM sized
    GROUP BY result_no
),

-- A query without hits costs nothing to read, in a run in which sizes are known at all.
measured_runs AS (
    SELECT DISTINCT r.run_id
    FROM totals AS t
    JOIN results AS r ON r.result_no = t.result_no
    WHERE t.sizes_known
),

found AS (
    SELECT DISTINCT result_no FROM chunk_matches
),

asked AS (
    SELECT result_no, run_id FROM results
    UNION ALL
    SELECT result_no, run_id FROM missing_queries
)

SELECT
    r.result_no,
    CASE WHEN f.result_no IS NOT NULL AND t.sizes_known THEN CAST(t.tokens AS DOUBLE) / 100 END AS tokens_to_hit,
    COALESCE(t.sizes_known, true)                                                         AS sizes_known
FROM asked AS r
JOIN measured_runs AS m ON m.run_id = r.run_id
LEFT JOIN totals AS t ON t.result_no = r.result_no
LEFT JOIN found AS f ON f.result_no = r.result_no
