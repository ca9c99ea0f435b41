-- empty_response_rate: how often was the answer empty, though there was no error and the system did not abstain?
-- grain: answered
-- over:  in_run AND (has_answer OR system = 'anchors')
-- better: lower
MAX(CASE WHEN is_empty THEN 1 ELSE 0 END)
