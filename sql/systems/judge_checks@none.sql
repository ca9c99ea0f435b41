-- judge_checks: as judge_checks.sql, if the database contains no judging.
-- kind: view
SELECT
    CAST(0 AS BIGINT)    AS result_no,
    false                AS judges_groundedness,
    false                AS judges_correctness,
    CAST(NULL AS DOUBLE) AS judge_groundedness,
    CAST(NULL AS DOUBLE) AS judge_correctness,
    CAST(NULL AS DOUBLE) AS judge_tokens,
    CAST(NULL AS DOUBLE) AS judge_cost_usd
WHERE false
