-- refused: questions that were refused.
-- system: grounded
-- grain: answered
-- over:  is_golden
-- missing: counted
-- agg:   count
-- better: neither
-- none:  0
MAX(CASE WHEN refused THEN 1 ELSE 0 END)
