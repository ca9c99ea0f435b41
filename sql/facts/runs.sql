-- runs: one row a stored run.
-- columns: run_id, suite, created_at, commit_hash, chunker_version, aggregate_json,
--          top_k (how many hits it asked for; 10 where it does not say),
--          system (whose rows they were before they were imported: 'anchors', 'grounded', or null)
-- kind: table
SELECT
    CAST(run_id AS VARCHAR)                AS run_id,
    CAST(suite AS VARCHAR)                 AS suite,
    CAST(created_at AS VARCHAR)            AS created_at,
    NULLIF(CAST(commit_hash AS VARCHAR), '') AS commit_hash,
    NULLIF(TRY(CAST(config_snapshot_json AS VARCHAR) ->> '$.chunker_version'), '') AS chunker_version,
    CAST(aggregate_json AS VARCHAR)        AS aggregate_json,
    COALESCE(
        json_rank(TRY(CAST(config_snapshot_json AS VARCHAR) -> '$.eval_k')),
        json_rank(TRY(CAST(config_snapshot_json AS VARCHAR) -> '$.k')),
        10
    )                                      AS top_k,
    TRY(CAST(config_snapshot_json AS VARCHAR) ->> '$.kbeval.system') AS system
FROM stored_runs
