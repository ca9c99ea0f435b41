-- judgings: as judgings.sql, if the database contains no judging.
-- kind: view
SELECT
    '' AS judging_id, '' AS run_id, '' AS rubric, '' AS judge, '' AS provider, '' AS model, '' AS base_url,
    '' AS parameters, '' AS rubric_hash, CAST(0 AS DOUBLE) AS scale_low, CAST(0 AS DOUBLE) AS scale_high,
    '' AS options, CAST(0 AS BIGINT) AS n_cut_contexts, '' AS created_at, CAST(0 AS BIGINT) AS n_wanted, CAST(0 AS BIGINT) AS n_judged,
    false AS is_complete, false AS is_chosen
WHERE false
