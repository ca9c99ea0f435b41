-- total_queries: rows that the run has.
-- grain: per_query
-- where: in_run
-- agg:   count
-- better: neither
-- if_empty: 0
1
