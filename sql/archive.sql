-- What kbeval keeps for itself in the database: where chunks stood when a scoring saw them. Re-indexing replaces the
-- table `chunks`, and chunk ids alone mean nothing afterwards; with this, old runs and old labels still compare.

CREATE TABLE IF NOT EXISTS kbeval_chunk_spans (
    chunk_id          TEXT NOT NULL,
    chunker_version   TEXT NOT NULL,
    doc_id            TEXT,
    source_spans_json TEXT,
    seen_in           TEXT NOT NULL,  -- 'chunks': the table, 'hits': only a stored row
    first_seen        TEXT NOT NULL,
    PRIMARY KEY (chunk_id, chunker_version)
);
