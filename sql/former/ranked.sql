-- ranked: the former name of `per_hit`, for metrics and queries that still use it.
-- columns: all of per_hit
-- kind: view
SELECT * FROM per_hit
