-- matched: the former name of `per_expected_hit`, for metrics and queries that still use it.
-- columns: all of per_expected_hit
-- kind: view
SELECT * FROM per_expected_hit
