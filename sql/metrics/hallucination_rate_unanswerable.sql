-- hallucination_rate_unanswerable: of the queries that should be refused, how many were answered?
-- system: anchors
-- grain: per_query
-- where: should_refuse AND (has_answer OR flagged)
-- better: lower
CASE WHEN refused THEN 0 ELSE 1 END
