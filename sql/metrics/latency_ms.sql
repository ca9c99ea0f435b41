-- latency_ms: how long did it take? The median, the 95th percentile and the sum, in milliseconds.
-- system: anchors
-- grain: answered
-- over:  in_run
-- agg:   percentiles
-- better: lower
MAX(elapsed_ms)
