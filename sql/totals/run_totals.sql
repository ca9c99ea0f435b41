-- run_totals: for each run what its aggregates are made of: sums that no order of rows can change, and counts.
-- columns: run_id, slice, n_queries, then for each metric and k the sum of its values and how many there are
-- kind: view
--
-- Composed: {sums} is, for each metric and k, SUM(<value as a fixed-point number>), COUNT(<the same>).
SELECT
    run_id,
    '' AS slice,
    COUNT(*) AS n_queries,
    {sums}
FROM query_scores
GROUP BY run_id
ORDER BY run_id
