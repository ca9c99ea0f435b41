-- recall_at_k_chunk: what share of the expected chunks is among the first k hits?
-- grain: per_expected_hit
-- where: n_expected_places > 0
-- k:     1 3 5 10
CAST(SUM(CASE WHEN rank <= :k THEN n_places ELSE 0 END) AS DOUBLE) / NULLIF(MAX(n_expected_places), 0)
