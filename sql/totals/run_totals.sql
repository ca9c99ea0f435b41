-- run_totals: for each run, or each slice of one, the components of its aggregates: sums that do not depend on the order of
-- rows, and counts.
-- columns: run_id, slice, n_queries, then for each metric and k the sums of its values and how many there are
-- kind: view
--
-- Composed: {scores} is summable_scores or sliced_scores. {split} is, for each metric and k, its value and its integer
-- part, and {sums} the sum of integer parts, the sum of remainders, and COUNT(<value>).
WITH summable AS (
    {scores}
),

split AS (
    SELECT
        run_id,
        slice,
        {split}
    FROM summable
)

SELECT
    run_id,
    slice,
    COUNT(*) AS n_queries,
    {sums}
FROM split
GROUP BY run_id, slice
ORDER BY run_id, slice
