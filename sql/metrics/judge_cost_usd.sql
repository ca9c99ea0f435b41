-- judge_cost_usd: the total cost of judging.
-- grain: per_query
-- where: in_run AND judge_cost_usd IS NOT NULL
-- agg:   sum
-- better: lower
judge_cost_usd
