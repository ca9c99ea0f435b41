-- The tables of a knowledge-base workspace, as kbeval reads them.
-- `kbeval demo` creates its database from this file; your own may have more columns and more tables.

CREATE TABLE IF NOT EXISTS documents (
    doc_id         TEXT PRIMARY KEY,
    workspace_path TEXT NOT NULL UNIQUE,
    title          TEXT,
    lang           TEXT
);

CREATE TABLE IF NOT EXISTS chunks (
    chunk_id          TEXT PRIMARY KEY,
    doc_id            TEXT NOT NULL,
    text              TEXT NOT NULL,
    heading_path_json TEXT NOT NULL,
    section_label     TEXT,
    source_spans_json TEXT NOT NULL,
    token_estimate    INTEGER NOT NULL,
    chunker_version   TEXT NOT NULL,
    policy_hash       TEXT NOT NULL,
    block_ids_json    TEXT NOT NULL,
    created_at        TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS eval_runs (
    run_id               TEXT PRIMARY KEY,
    suite                TEXT NOT NULL,
    config_snapshot_json TEXT NOT NULL,
    aggregate_json       TEXT NOT NULL,
    commit_hash          TEXT,
    created_at           TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS eval_query_results (
    run_id      TEXT NOT NULL REFERENCES eval_runs (run_id) ON DELETE CASCADE,
    query_id    TEXT NOT NULL,
    result_json TEXT NOT NULL,
    PRIMARY KEY (run_id, query_id)
);
