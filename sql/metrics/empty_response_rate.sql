-- empty_response_rate: how often was the answer empty, without an error and without saying that the system abstained?
-- system: anchors
-- grain: answered
-- over:  in_run
-- better: lower
MAX(CASE WHEN is_empty THEN 1 ELSE 0 END)
