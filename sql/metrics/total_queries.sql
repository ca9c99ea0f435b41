-- total_queries: rows that the run has.
-- grain: answered
-- over:  in_run
-- agg:   count
-- better: neither
-- none:  0
MAX(1)
