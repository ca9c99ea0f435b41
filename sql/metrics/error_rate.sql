-- error_rate: how often did the system fail?
-- grain: per_query
-- where: in_run
-- better: lower
CASE WHEN failed THEN 1 ELSE 0 END
