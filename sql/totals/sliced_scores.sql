-- sliced_scores: as summable_scores, for each slice of the requested fields; a query with several tags is in each of their
-- slices.
-- columns: run_id, slice, and v0, v1, … for each metric and k
-- kind: view
SELECT
    query_scores.run_id,
    asked_slices.slice,
    {values}
FROM query_scores
JOIN asked_slices ON asked_slices.result_no = query_scores.result_no
