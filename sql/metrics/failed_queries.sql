-- failed_queries: rows that hold an error.
-- grain: answered
-- over:  in_run
-- agg:   count
-- none:  0
-- better: lower
MAX(CASE WHEN failed THEN 1 ELSE 0 END)
