-- A table of kbeval in the database: where chunks were when a scoring saw them. Re-indexing replaces the
-- table `chunks`, and chunk ids alone mean nothing afterwards; with this table, old runs and old labels remain comparable.
-- The policy is part of the key: a chunker with other parameters may use the same ids for other text. So is the place: an
-- index that was rebuilt may do so under the same version and policy.

CREATE TABLE IF NOT EXISTS kbeval_chunk_spans (
    chunk_id          TEXT NOT NULL,
    chunker_version   TEXT NOT NULL,
    policy_hash       TEXT NOT NULL DEFAULT '',  -- '': unknown
    doc_id            TEXT NOT NULL DEFAULT '',  -- likewise
    source_spans_json TEXT NOT NULL DEFAULT '',  -- likewise
    tokens            REAL,
    seen_in           TEXT NOT NULL,  -- 'chunks': the table, 'hits': only a stored row
    first_seen        TEXT NOT NULL,
    PRIMARY KEY (chunk_id, chunker_version, policy_hash, doc_id, source_spans_json)
);
