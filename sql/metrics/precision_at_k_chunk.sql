-- precision_at_k_chunk: how many of k hits are expected chunks? Divided by k even if there are fewer hits.
-- grain: per_expected_hit
-- where: n_expected_chunks > 0
-- k:     1 3 5 10
-- if_empty: 0
-- comparable: within
CAST(SUM(CASE WHEN is_expected_chunk AND rank <= :k THEN 1 ELSE 0 END) AS DOUBLE) / :k
