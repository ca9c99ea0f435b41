-- cost_usd: what the system's answers cost, in all, in US dollars: the rows' `cost_usd`, else their `cost`.
-- grain: per_query
-- where: in_run AND cost_usd IS NOT NULL
-- agg:   sum
-- better: lower
cost_usd
