-- A table of kbeval in the database: the chunkers that `kbeval import documents` has used, one row per chunker and
-- parameters. When a document changes, its chunks of all chunkers are replaced.

CREATE TABLE IF NOT EXISTS kbeval_chunkers (
    chunker_version TEXT PRIMARY KEY,
    policy_hash     TEXT NOT NULL,  -- of policy_json, as in `chunks`
    policy_json     TEXT NOT NULL   -- chunker, size, overlap
);
