-- abstention_accuracy: of the queries that should be refused, how many were?
-- system: anchors
-- grain: answered
-- over:  should_refuse AND (has_answer OR flagged)
MAX(CASE WHEN refused THEN 1 ELSE 0 END)
