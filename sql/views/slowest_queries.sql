-- slowest_queries: how long each query took, over all runs that say so. A failed query took its time, too.
-- columns: query_id, query, n (rows that say how long they took), mean_ms, p95_ms, max_ms, n_failed (of those rows)
-- kind: view
-- shown: yes
-- example: SELECT query_id, query, n, mean_ms, p95_ms, max_ms FROM slowest_queries ORDER BY mean_ms DESC, query_id LIMIT 10
WITH timed AS (
    -- Fixed-point numbers, as scores are: their sum is the same in any order. What is too large is not a time.
    SELECT query_id, failed, TRY_CAST(elapsed_ms AS DECIMAL(30, 15)) AS ms
    FROM per_query
    WHERE in_run
),

times AS (
    SELECT
        query_id,
        COUNT(*)                                                                   AS n,
        ROUND(CAST(SUM(ms) AS DOUBLE) / COUNT(*), 4)                               AS mean_ms,
        ROUND(PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY CAST(ms AS DOUBLE)), 4) AS p95_ms,
        CAST(MAX(ms) AS DOUBLE)                                                    AS max_ms,
        COUNT(CASE WHEN failed THEN 1 END)                                         AS n_failed
    FROM timed
    WHERE ms IS NOT NULL
    GROUP BY query_id
)

SELECT t.query_id, q.query, t.n, t.mean_ms, t.p95_ms, t.max_ms, t.n_failed
FROM times AS t
LEFT JOIN queries AS q ON q.query_id = t.query_id
