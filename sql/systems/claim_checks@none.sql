-- claim_checks: as claim_checks.sql, if no run is of grounded question answering.
-- kind: view
SELECT
    CAST(0 AS BIGINT) AS result_no,
    CAST(0 AS BIGINT) AS n_claims_found,
    CAST(0 AS BIGINT) AS n_cited,
    CAST(0 AS BIGINT) AS n_cited_unseen,
    CAST(0 AS BIGINT) AS n_cited_gold,
    CAST(0 AS BIGINT) AS n_gold_found,
    CAST(0 AS BIGINT) AS last_gold_rank
WHERE false
