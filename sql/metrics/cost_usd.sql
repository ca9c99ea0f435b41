-- cost_usd: what the system's answers cost, in all, in US dollars: the rows' `cost_usd`, else their `cost`.
-- grain: answered
-- over:  in_run AND cost_usd IS NOT NULL
-- agg:   sum
-- better: lower
MAX(cost_usd)
