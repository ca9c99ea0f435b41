-- over_refusal_rate: of the questions that can be answered, how many were refused?
-- system: grounded
-- grain: answered
-- over:  NOT should_refuse
-- missing: counted
-- none:  0
-- better: lower
MAX(CASE WHEN COALESCE(refused, false) THEN 1 ELSE 0 END)
