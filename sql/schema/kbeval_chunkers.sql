-- What kbeval keeps for itself in the database: how `kbeval import documents` has cut its documents into chunks, one row
-- per way. When a document changes, its chunks of all ways are made again.

CREATE TABLE IF NOT EXISTS kbeval_chunkers (
    chunker_version TEXT PRIMARY KEY,
    policy_hash     TEXT NOT NULL,  -- of policy_json, as in `chunks`
    policy_json     TEXT NOT NULL   -- chunker, size, overlap
);
