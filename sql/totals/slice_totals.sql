-- slice_totals: as run_totals, for each slice of the fields asked for; a query with several tags is in each of their slices.
-- columns: run_id, slice, n_queries, then for each metric and k the sum of its values and how many there are
-- kind: view
WITH sliced AS (
    SELECT q.*, s.slice
    FROM query_scores AS q
    JOIN asked_slices AS s ON s.result_no = q.result_no
)

SELECT
    run_id,
    slice,
    COUNT(*) AS n_queries,
    {sums}
FROM sliced
GROUP BY run_id, slice
ORDER BY run_id, slice
