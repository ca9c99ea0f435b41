-- judge_tokens: tokens that judging took, in all.
-- grain: per_query
-- where: in_run AND judge_tokens IS NOT NULL
-- agg:   sum
-- better: lower
judge_tokens
