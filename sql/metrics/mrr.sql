-- mrr: how high is the first expected chunk? 1 / its rank, 0 beyond rank 10.
-- grain: per_expected_hit
-- where: n_expected_chunks > 0
-- if_empty: 0
COALESCE(MAX(CASE WHEN is_expected_chunk AND rank <= 10 THEN CAST(1 AS DOUBLE) / rank END), 0)
