-- A table of kbeval in the database: runs that are in progress. Scoring does not see them. When all of its
-- queries have been asked, a run moves to eval_runs and eval_query_results in one transaction.

CREATE TABLE IF NOT EXISTS kbeval_unfinished_runs (
    run_id      TEXT PRIMARY KEY,
    suite       TEXT NOT NULL,
    config_json TEXT NOT NULL,  -- config_snapshot_json, as it will be stored
    plan_json   TEXT NOT NULL,  -- the state for resuming: the queries, hashes of the golden file and the target, options
    commit_hash TEXT,
    started_at  TEXT NOT NULL
);
