-- error_rate: how often did the system fail?
-- grain: answered
-- over:  in_run
-- better: lower
MAX(CASE WHEN failed THEN 1 ELSE 0 END)
