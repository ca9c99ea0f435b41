-- timeout_rate: how often did the system not answer in time?
-- grain: per_query
-- where: in_run
-- better: lower
CASE WHEN timed_out THEN 1 ELSE 0 END
