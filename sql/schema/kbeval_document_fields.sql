-- A table of kbeval in the database: fields of imported documents for which the table `documents` has no column.

CREATE TABLE IF NOT EXISTS kbeval_document_fields (
    doc_id      TEXT PRIMARY KEY,
    fields_json TEXT NOT NULL
);
