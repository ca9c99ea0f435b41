-- A table of kbeval in the database: the documents that `kbeval import documents` has stored in `documents`.
-- Rows of that table that are not listed here belong to another program, and are never changed.

CREATE TABLE IF NOT EXISTS kbeval_documents (
    doc_id      TEXT PRIMARY KEY,
    text_sha256 TEXT NOT NULL,  -- of the file
    imported_at TEXT NOT NULL
);
