-- under_refusal_rate: of the questions that cannot be answered, how many were answered?
-- system: grounded
-- grain: answered
-- over:  should_refuse
-- missing: counted
-- none:  0
-- better: lower
MAX(CASE WHEN COALESCE(refused, false) THEN 0 ELSE 1 END)
