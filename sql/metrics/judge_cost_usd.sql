-- judge_cost_usd: what judging cost, in all.
-- system: anchors
-- grain: answered
-- over:  in_run AND judge_cost_usd IS NOT NULL
-- agg:   sum
-- better: lower
MAX(judge_cost_usd)
