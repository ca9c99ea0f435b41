-- empty_result_rate: how often did nothing come back? A failed query counts.
-- grain: answered
-- over:  in_run
-- none:  0
-- better: lower
MAX(CASE WHEN n_hits = 0 THEN 1 ELSE 0 END)
