-- failed_queries: rows with an error.
-- grain: per_query
-- where: in_run
-- agg:   count
-- if_empty: 0
-- better: lower
CASE WHEN failed THEN 1 ELSE 0 END
