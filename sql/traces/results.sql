-- results: as sql/stored/results.sql, one row per trace. A trace always has an answer, which shows whether it refused.
-- kind: view
SELECT
    rowid                       AS result_no,
    'trace'                     AS run_id,
    query_id,
    CAST(NULL AS DOUBLE)        AS elapsed_ms,
    CAST(NULL AS VARCHAR)       AS error,
    false                       AS failed,
    COALESCE(len(retrieved), 0) AS n_hits,
    true                        AS has_answer,
    NOT is_refusal              AS grounded,
    is_refusal                  AS refused,
    true                        AS flagged,
    CASE WHEN length(claim) > 99 THEN false ELSE trim(COALESCE(claim, ''), E' \t\r\n') = '' END AS is_empty,
    CAST(NULL AS DOUBLE)        AS tokens,
    CAST(NULL AS DOUBLE)        AS cost_usd
FROM traces
