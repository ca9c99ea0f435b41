-- answered: questions that were answered, those without a trace included.
-- system: grounded
-- grain: answered
-- over:  is_golden
-- missing: counted
-- agg:   count
-- better: neither
-- none:  0
MAX(CASE WHEN COALESCE(NOT refused, true) THEN 1 ELSE 0 END)
