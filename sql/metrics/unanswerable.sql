-- unanswerable: questions that cannot be answered.
-- system: grounded
-- grain: answered
-- over:  is_golden
-- missing: counted
-- agg:   count
-- better: neither
-- none:  0
MAX(CASE WHEN should_refuse THEN 1 ELSE 0 END)
