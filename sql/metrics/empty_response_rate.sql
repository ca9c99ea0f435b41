-- empty_response_rate: how often was the answer empty, without an error? A row that holds no answer at all is left out.
-- grain: answered
-- over:  in_run AND (has_answer OR system = 'anchors')
-- better: lower
MAX(CASE WHEN is_empty THEN 1 ELSE 0 END)
