-- judge_tokens: tokens that judging took, in all.
-- system: anchors
-- grain: answered
-- over:  in_run AND judge_tokens IS NOT NULL
-- agg:   sum
-- better: lower
MAX(judge_tokens)
