-- runs: as sql/stored/runs.sql: one run, of which only the system is known.
-- kind: view
SELECT
    'trace'               AS run_id,
    'grounded'            AS suite,
    ''                    AS created_at,
    CAST(NULL AS VARCHAR) AS commit_hash,
    CAST(NULL AS VARCHAR) AS chunker_version,
    ''                    AS aggregate_json,
    10                    AS top_k,
    'grounded'            AS system,
    CAST(NULL AS VARCHAR) AS policy_hash,
    CAST(NULL AS VARCHAR) AS retriever,
    CAST(NULL AS VARCHAR) AS reranker,
    CAST(NULL AS VARCHAR) AS embedding_model,
    CAST(NULL AS VARCHAR) AS llm_model,
    CAST(NULL AS VARCHAR) AS prompt_version,
    CAST(NULL AS VARCHAR) AS config
