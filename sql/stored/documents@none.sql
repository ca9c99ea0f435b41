-- documents: as documents.sql, if the table is missing or empty.
-- kind: view
SELECT '' AS doc_id, '' AS path WHERE false
