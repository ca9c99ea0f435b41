-- documents: as sql/stored/documents.sql: none, because a trace has no knowledge base.
-- kind: view
SELECT '' AS doc_id, '' AS path WHERE false
