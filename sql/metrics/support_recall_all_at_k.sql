-- support_recall_all_at_k: was any group of supports complete among the first k hits?
-- labels: gold_supports
-- grain: per_query
-- where: n_support_groups > 0
-- k:     1 3 5 10
CASE WHEN supports_complete_rank <= :k THEN 1 ELSE 0 END
