-- sliced_scores: as summable_scores, for each slice of one field (the parameter); a query with several tags is in each of
-- their slices.
-- columns: run_id, slice, and v0, v1, … for each metric and k
-- kind: view
SELECT
    query_scores.run_id,
    COALESCE(query_slices.slice, '(none)') AS slice,
    {values}
FROM query_scores
LEFT JOIN query_slices ON query_slices.query_id = query_scores.query_id AND query_slices.field = ?
