-- percentiles: for each run, or each slice of one, the values next to the median and to the 95th percentile of metrics.
-- columns: run_id, slice, metric, p50_low, p50_high, p95_low, p95_high (equal if a percentile is one of the values)
-- kind: view
--
-- In n sorted values, counted from 0, percentile p is at position p * (n - 1) / 100. The neighbouring values are less than
-- one position away, which is decided with integers. Composed: {scores} is summable_scores or sliced_scores, and {branches}
-- has one branch for each metric.
WITH summable AS (
    {scores}
),

numbers AS (
    {branches}
),

placed AS (
    SELECT
        run_id,
        slice,
        metric,
        value,
        ROW_NUMBER() OVER (PARTITION BY run_id, slice, metric ORDER BY value) - 1 AS place,
        COUNT(*) OVER (PARTITION BY run_id, slice, metric)                        AS n
    FROM numbers
)

SELECT
    run_id,
    slice,
    metric,
    MIN(CASE WHEN ABS(100 * place - 50 * (n - 1)) < 100 THEN value END) AS p50_low,
    MAX(CASE WHEN ABS(100 * place - 50 * (n - 1)) < 100 THEN value END) AS p50_high,
    MIN(CASE WHEN ABS(100 * place - 95 * (n - 1)) < 100 THEN value END) AS p95_low,
    MAX(CASE WHEN ABS(100 * place - 95 * (n - 1)) < 100 THEN value END) AS p95_high
FROM placed
GROUP BY run_id, slice, metric
