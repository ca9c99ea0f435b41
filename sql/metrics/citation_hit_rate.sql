-- citation_hit_rate: of the questions that were answered, how many were answerable and rightly cited?
-- system: grounded
-- grain: answered
-- over:  is_golden AND COALESCE(NOT refused, true)
-- missing: counted
-- none:  1
MAX(CASE WHEN NOT should_refuse AND claim_cited THEN 1 ELSE 0 END)
