-- A table of kbeval in the database: every request that `kbeval run` has sent, one row each, committed before
-- the next request for the query. While a run is unfinished, result_json contains its rows; afterwards they are in
-- eval_query_results.

CREATE TABLE IF NOT EXISTS kbeval_attempts (
    run_id        TEXT NOT NULL,
    query_id      TEXT NOT NULL,
    repetition    INTEGER NOT NULL,  -- 1, or the number of the run among its repetitions
    attempt       INTEGER NOT NULL,  -- counted from 1, also across resumes
    request_hash  TEXT NOT NULL,     -- of the rendered request, without secrets
    started_at    TEXT NOT NULL,
    elapsed_ms    REAL NOT NULL,
    status        INTEGER,           -- of HTTP; null: no response, or not a web server
    error_kind    TEXT,              -- null: answered
    error_message TEXT,
    result_json   TEXT,
    PRIMARY KEY (run_id, query_id, attempt)
);
