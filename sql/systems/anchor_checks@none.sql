-- anchor_checks: as anchor_checks.sql, if no run is of the anchor-labelled system and no label names a support.
-- kind: view
SELECT
    CAST(0 AS BIGINT)    AS result_no,
    CAST(0 AS BIGINT)    AS complete_rank,
    false                AS names_folders,
    false                AS in_scope,
    false                AS has_references,
    false                AS cites_support,
    CAST(NULL AS DOUBLE) AS total_ms,
    CAST(NULL AS DOUBLE) AS judge_groundedness,
    CAST(NULL AS DOUBLE) AS judge_correctness,
    CAST(NULL AS DOUBLE) AS judge_tokens,
    CAST(NULL AS DOUBLE) AS judge_cost_usd
WHERE false
