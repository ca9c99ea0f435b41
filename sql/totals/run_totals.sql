-- run_totals: for each run, or each slice of one, what its aggregates are made of: sums that no order of rows can change,
-- and counts.
-- columns: run_id, slice, n_queries, then for each metric and k the sums of its values and how many there are
-- kind: view
--
-- Composed: {scores} is summable_scores or sliced_scores. {split} is, for each metric and k, its value and the whole part
-- of that, and {sums} the sum of whole parts, the sum of rests, and COUNT(<value>).
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
