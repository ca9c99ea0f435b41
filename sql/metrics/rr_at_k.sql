-- rr_at_k: how high is the first relevant chunk? 1 / its rank, 0 beyond rank k.
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0
-- k:     1 3 5 10
COALESCE(MAX(CASE WHEN is_relevant AND rank <= :k THEN CAST(1 AS DOUBLE) / rank END), 0)
