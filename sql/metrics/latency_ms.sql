-- latency_ms: how long did it take? The median, the 95th percentile and the sum, in milliseconds.
-- grain: per_query
-- where: in_run AND elapsed_ms IS NOT NULL
-- agg:   percentiles
-- better: lower
elapsed_ms
