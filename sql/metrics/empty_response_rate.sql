-- empty_response_rate: how often was the answer empty although there was no error and the system did not abstain?
-- grain: per_query
-- where: in_run AND (has_answer OR system = 'anchors')
-- better: lower
CASE WHEN is_empty THEN 1 ELSE 0 END
