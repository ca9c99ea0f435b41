-- support_recall_all_at_k: was some group of supports whole among the first k hits?
-- labels: gold_supports
-- grain: answered
-- over:  n_support_groups > 0
-- k:     1 3 5 10
MAX(CASE WHEN supports_complete_rank <= :k THEN 1 ELSE 0 END)
