-- bpref: how rarely does a chunk judged as not relevant precede a relevant one? Chunks without a judgement are ignored.
-- labels: relevance
-- grain: per_label
-- where: n_expected_places > 0
-- comparable: within
CASE WHEN MAX(CASE WHEN is_judgement THEN 1 ELSE 0 END) = 1 THEN
    COALESCE(CAST(
        SUM(
            CASE
                WHEN NOT is_relevant OR rank IS NULL THEN 0
                WHEN n_nonrelevant_seen = 0          THEN 1
                ELSE CAST(
                    1 - CAST(LEAST(n_nonrelevant_seen, n_relevant) AS DOUBLE) / LEAST(n_nonrelevant, n_relevant)
                    AS DECIMAL(30, 15)
                )
            END
        ) AS DOUBLE
    ) / NULLIF(MAX(n_relevant), 0), 0)
END
