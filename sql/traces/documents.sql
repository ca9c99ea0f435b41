-- documents: as sql/stored/documents.sql: none, because next to a trace there is no knowledge base.
-- kind: view
SELECT '' AS doc_id, '' AS path WHERE false
