-- cost_usd: the total cost of the system's answers in US dollars: the rows' `cost_usd`, otherwise their `cost`.
-- grain: per_query
-- where: in_run AND cost_usd IS NOT NULL
-- agg:   sum
-- better: lower
cost_usd
