-- runs: one row per stored run.
-- columns: run_id, suite, created_at, commit_hash, chunker_version (from the configuration; if it is not given there, see
--          run_chunkers), aggregate_json, top_k (the number of hits requested; 10 if not stated),
--          system (the system that the rows were imported from: 'anchors', 'grounded', or null),
--          policy_hash, retriever, reranker, embedding_model, llm_model, prompt_version (from the configuration; null: not
--          stated), config (the configuration as JSON: config ->> '$.embedding.model'; null if it is not JSON)
-- kind: table
-- shown: yes
SELECT
    CAST(run_id AS VARCHAR)                AS run_id,
    CAST(suite AS VARCHAR)                 AS suite,
    CAST(created_at AS VARCHAR)            AS created_at,
    NULLIF(CAST(commit_hash AS VARCHAR), '') AS commit_hash,
    NULLIF(config ->> '$.chunker_version', '') AS chunker_version,
    CAST(aggregate_json AS VARCHAR)        AS aggregate_json,
    COALESCE(
        json_rank(config -> '$.eval_k'),
        json_rank(config -> '$.k'),
        10
    )                                      AS top_k,
    config ->> '$.kbeval.system' AS system,
    json_scalar(config, '$.policy_hash')   AS policy_hash,
    COALESCE(json_scalar(config, '$.retriever'), json_scalar(config, '$.retriever.name')) AS retriever,
    COALESCE(json_scalar(config, '$.reranker'), json_scalar(config, '$.reranker.model'),
             json_scalar(config, '$.reranker_model'))                                     AS reranker,
    COALESCE(json_scalar(config, '$.embedding.model'), json_scalar(config, '$.embedding_model'),
             json_scalar(config, '$.embedding'))                                          AS embedding_model,
    COALESCE(json_scalar(config, '$.llm.model_id'), json_scalar(config, '$.llm.model'),
             json_scalar(config, '$.llm_model'), json_scalar(config, '$.model'))          AS llm_model,
    COALESCE(json_scalar(config, '$.prompt_template_version'), json_scalar(config, '$.prompt_version')) AS prompt_version,
    config
FROM (
    SELECT
        *,
        CASE WHEN is_strict_json(CAST(config_snapshot_json AS VARCHAR)) THEN CAST(config_snapshot_json AS VARCHAR) END AS config
    FROM stored_runs
)
