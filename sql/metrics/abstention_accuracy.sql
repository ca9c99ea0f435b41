-- abstention_accuracy: of the queries that should be refused, how many were?
-- system: anchors
-- grain: per_query
-- where: should_refuse AND (has_answer OR flagged)
CASE WHEN refused THEN 1 ELSE 0 END
