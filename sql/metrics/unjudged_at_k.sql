-- unjudged_at_k: what share of the first k hits has no judgement, and therefore counts as not relevant? 1 - judged_at_k.
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0 AND n_hits > 0
-- k:     1 3 5 10
-- better: neither
-- comparable: within
CASE WHEN MAX(CASE WHEN is_judgement THEN 1 ELSE 0 END) = 1 THEN
    1 - CAST(SUM(CASE WHEN rank <= :k THEN 1 ELSE 0 END) AS DOUBLE) / NULLIF(LEAST(MAX(n_hits), :k), 0)
END
