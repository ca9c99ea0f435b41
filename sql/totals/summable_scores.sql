-- summable_scores: the values of query_scores that sums and percentiles are computed from; the others count as missing.
-- columns: run_id, slice (always empty), and v0, v1, … for each metric and k
-- kind: view
--
-- Composed: {values} is, for each metric and k, its value if that is a finite number below 1e15.
SELECT
    run_id,
    '' AS slice,
    {values}
FROM query_scores
