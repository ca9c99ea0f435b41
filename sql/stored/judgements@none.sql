-- judgements: as judgements.sql, if the database contains no judging.
-- kind: view
SELECT
    CAST(0 AS BIGINT) AS result_no, '' AS run_id, '' AS query_id, '' AS rubric, '' AS judging_id, '' AS model,
    CAST(0 AS DOUBLE) AS score, false AS is_scored, '' AS why, '' AS reasoning, '' AS supported, '' AS unsupported,
    CAST(0 AS BIGINT) AS tokens, CAST(0 AS DOUBLE) AS cost_usd, false AS is_cached, '' AS created_at, '' AS input_hash
WHERE false
