-- slowest_queries: how long each query took, over all runs that record it. Failed queries are included.
-- columns: query_id, query, n (rows with a time), mean_ms, p95_ms, max_ms, n_failed (of those rows)
-- kind: view
-- shown: yes
-- example: SELECT query_id, query, n, mean_ms, p95_ms, max_ms FROM slowest_queries ORDER BY mean_ms DESC, query_id LIMIT 10
WITH timed AS (
    -- A value that is too large is not a time.
    SELECT query_id, failed, elapsed_ms AS ms, FLOOR(elapsed_ms) AS whole_ms
    FROM per_query
    WHERE in_run AND ABS(elapsed_ms) < 1e15
),

placed AS (
    SELECT
        query_id,
        failed,
        ms,
        whole_ms,
        ROW_NUMBER() OVER (PARTITION BY query_id ORDER BY ms) - 1 AS place,
        COUNT(*) OVER (PARTITION BY query_id)                     AS n
    FROM timed
),

-- Sums of integers, as for scores, and the values next to the 95th percentile.
times AS (
    SELECT
        query_id,
        n,
        CAST(SUM(CAST(whole_ms AS DECIMAL(16, 0))) AS DOUBLE)                                  AS whole,
        CAST(SUM(CAST(FLOOR((ms - whole_ms) * 1e15 + 0.5) AS DECIMAL(16, 0))) AS DOUBLE) / 1e15 AS rest,
        MIN(CASE WHEN ABS(100 * place - 95 * (n - 1)) < 100 THEN ms END)                       AS low,
        MAX(CASE WHEN ABS(100 * place - 95 * (n - 1)) < 100 THEN ms END)                       AS high,
        MAX(ms)                                                                                AS max_ms,
        COUNT(CASE WHEN failed THEN 1 END)                                                     AS n_failed
    FROM placed
    GROUP BY query_id, n
)

SELECT
    t.query_id,
    q.query,
    t.n,
    FLOOR((t.whole + t.rest) / t.n * 1e4 + 0.5) / 1e4                                          AS mean_ms,
    FLOOR((t.low + (t.high - t.low) * ((95 * (t.n - 1)) % 100) / 1e2) * 1e4 + 0.5) / 1e4       AS p95_ms,
    t.max_ms,
    t.n_failed
FROM times AS t
LEFT JOIN queries AS q ON q.query_id = t.query_id
