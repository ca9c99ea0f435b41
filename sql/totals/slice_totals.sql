-- slice_totals: as run_totals, for each slice of one field ($1); a query with several tags is in each of their slices.
-- columns: run_id, slice, n_queries, then for each metric and k the sum of its values and how many there are
-- kind: view
WITH sliced AS (
    SELECT q.*, COALESCE(s.slice, '(none)') AS slice
    FROM query_scores AS q
    LEFT JOIN query_slices AS s ON s.query_id = q.query_id AND s.field = $1
)

SELECT
    run_id,
    slice,
    COUNT(*) AS n_queries,
    {sums}
FROM sliced
GROUP BY run_id, slice
ORDER BY run_id, slice
