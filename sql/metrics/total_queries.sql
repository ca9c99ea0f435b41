-- total_queries: rows of the run.
-- grain: per_query
-- where: in_run
-- agg:   count
-- better: neither
-- if_empty: 0
1
