-- timeout_rate: how often did it not answer in time?
-- grain: answered
-- over:  in_run
-- better: lower
MAX(CASE WHEN timed_out THEN 1 ELSE 0 END)
