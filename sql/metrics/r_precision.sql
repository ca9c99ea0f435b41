-- r_precision: what share of the first R hits is relevant, where R is the number of relevant chunks?
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0
-- comparable: within
COALESCE(
    CAST(SUM(CASE WHEN is_relevant AND rank <= n_relevant THEN 1 ELSE 0 END) AS DOUBLE) / NULLIF(MAX(n_relevant), 0), 0
)
