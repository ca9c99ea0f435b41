-- ndcg_at_k: how good are the first k hits, compared with the ideal order? Grades as gain, discounted by log2(rank + 1).
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0
-- k:     1 3 5 10
-- comparable: within
COALESCE(
    CAST(SUM(CASE WHEN rank <= :k THEN CAST(grade / LOG2(rank + 1) AS DECIMAL(30, 15)) ELSE 0 END) AS DOUBLE)
    / NULLIF(
        CAST(
            SUM(CASE WHEN ideal_rank <= :k THEN CAST(grade / LOG2(ideal_rank + 1) AS DECIMAL(30, 15)) ELSE 0 END)
            AS DOUBLE
        ), 0
    ), 0
)
