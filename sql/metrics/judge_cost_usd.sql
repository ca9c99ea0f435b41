-- judge_cost_usd: what judging cost, in all.
-- system: anchors
-- grain: answered
-- over:  in_run
-- agg:   sum
-- better: lower
MAX(judge_cost_usd)
