-- runs: one row a stored run.
-- columns: run_id, suite, created_at, commit_hash, chunker_version, aggregate_json
-- kind: table
SELECT
    CAST(run_id AS VARCHAR)                AS run_id,
    CAST(suite AS VARCHAR)                 AS suite,
    CAST(created_at AS VARCHAR)            AS created_at,
    NULLIF(CAST(commit_hash AS VARCHAR), '') AS commit_hash,
    TRY(CAST(config_snapshot_json AS VARCHAR) ->> '$.chunker_version') AS chunker_version,
    CAST(aggregate_json AS VARCHAR)        AS aggregate_json
FROM stored_runs
