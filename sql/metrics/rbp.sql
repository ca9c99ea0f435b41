-- rbp: rank-biased precision: the share of relevant hits seen by a reader who continues to the next hit with probability
-- 0.8.
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0
-- comparable: within
CAST(
    SUM(CASE WHEN is_relevant AND rank IS NOT NULL THEN CAST(0.2 * POWER(0.8, rank - 1) AS DECIMAL(30, 15)) ELSE 0 END)
    AS DOUBLE
)
