-- support_recall_any_at_k: was any gold support among the first k hits?
-- labels: gold_supports
-- grain: per_expected_hit
-- where: n_supports > 0
-- k:     1 3 5 10
MAX(CASE WHEN is_support AND rank <= :k THEN 1 ELSE 0 END)
