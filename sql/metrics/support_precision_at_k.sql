-- support_precision_at_k: how many of k hits are gold supports? Divided by k even if there are fewer hits.
-- labels: gold_supports
-- grain: per_expected_hit
-- where: n_supports > 0
-- k:     1 3 5 10
-- comparable: within
CAST(SUM(CASE WHEN is_support AND rank <= :k THEN 1 ELSE 0 END) AS DOUBLE) / :k
