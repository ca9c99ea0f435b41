-- support_mrr: how high is the first gold support? 1 / its rank, 0 if none was found.
-- labels: gold_supports
-- grain: per_expected_hit
-- where: n_supports > 0
COALESCE(MAX(CASE WHEN is_support THEN CAST(1 AS DOUBLE) / rank END), 0)
