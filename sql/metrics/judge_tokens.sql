-- judge_tokens: the total number of tokens used for judging.
-- grain: per_query
-- where: in_run AND judge_tokens IS NOT NULL
-- agg:   sum
-- better: lower
judge_tokens
