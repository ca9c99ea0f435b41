-- map_at_k: average precision: the mean, over all relevant chunks, of the precision at the rank of each that is among the
-- first k.
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0
-- k:     1 3 5 10
-- comparable: within
COALESCE(
    CAST(
        SUM(
            CASE
                WHEN is_relevant AND rank <= :k THEN CAST(CAST(n_relevant_seen AS DOUBLE) / rank AS DECIMAL(30, 15))
                ELSE 0
            END
        ) AS DOUBLE
    ) / NULLIF(MAX(n_relevant), 0), 0
)
