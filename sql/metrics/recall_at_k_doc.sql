-- recall_at_k_doc: what share of the expected documents is among the first k hits?
-- grain: per_expected_hit
-- where: n_expected_docs > 0
-- k:     1 3 5 10
-- if_empty: 0
CAST(SUM(CASE WHEN is_expected_doc AND rank <= :k THEN 1 ELSE 0 END) AS DOUBLE) / NULLIF(MAX(n_expected_docs), 0)
