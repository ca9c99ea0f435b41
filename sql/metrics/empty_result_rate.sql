-- empty_result_rate: how often did nothing come back? A failed query counts.
-- grain: per_query
-- where: in_run
-- if_empty: 0
-- better: lower
CASE WHEN n_hits = 0 THEN 1 ELSE 0 END
