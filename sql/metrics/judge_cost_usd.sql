-- judge_cost_usd: what judging cost, in all.
-- grain: per_query
-- where: in_run AND judge_cost_usd IS NOT NULL
-- agg:   sum
-- better: lower
judge_cost_usd
