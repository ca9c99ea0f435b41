-- judged_rows: as judgements, by the row that was judged, whether or not it is still there.
-- columns: run_id, query_id, row_mark (of the row as it was), and those of judgements
-- kind: table
SELECT
    g.run_id,
    CAST(d.query_id AS VARCHAR) AS query_id,
    CAST(d.row_mark AS VARCHAR) AS row_mark,
    g.rubric,
    g.judging_id,
    g.model,
    CASE WHEN CAST(j.state AS VARCHAR) = 'scored' THEN TRY_CAST(j.score AS DOUBLE) END AS score,
    CAST(j.state AS VARCHAR) = 'scored' AND TRY_CAST(j.score AS DOUBLE) IS NOT NULL    AS is_scored,
    NULLIF(CAST(j.why AS VARCHAR), '')                                                 AS why,
    NULLIF(CAST(j.reasoning AS VARCHAR), '')                                           AS reasoning,
    CASE WHEN is_strict_json(CAST(j.supported_json AS VARCHAR)) THEN CAST(j.supported_json AS VARCHAR) END
        AS supported,
    CASE WHEN is_strict_json(CAST(j.unsupported_json AS VARCHAR)) THEN CAST(j.unsupported_json AS VARCHAR) END
        AS unsupported,
    CASE
        WHEN CAST(d.is_cached AS VARCHAR) = '1' THEN 0
        ELSE TRY_CAST(j.tokens_in AS BIGINT) + TRY_CAST(j.tokens_out AS BIGINT)
    END                                                                                AS tokens,
    CASE WHEN CAST(d.is_cached AS VARCHAR) = '1' THEN 0 ELSE TRY_CAST(j.cost_usd AS DOUBLE) END AS cost_usd,
    CAST(d.is_cached AS VARCHAR) = '1'                                                 AS is_cached,
    CAST(j.created_at AS VARCHAR)                                                      AS created_at,
    CAST(j.input_hash AS VARCHAR)                                                      AS input_hash
FROM judgings AS g
JOIN stored_kbeval_judged AS d
    ON CAST(d.judging_id AS VARCHAR) = g.judging_id AND CAST(d.rubric AS VARCHAR) = g.rubric
JOIN stored_kbeval_judgements AS j ON CAST(j.judgement_key AS VARCHAR) = CAST(d.judgement_key AS VARCHAR)
WHERE g.is_chosen
