-- answered: the former name of `per_query`, for metrics and queries that still use it.
-- columns: all of per_query
-- kind: view
SELECT * FROM per_query
