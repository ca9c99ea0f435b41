-- doc_paths: the document that a path refers to, according to the table `documents`.
-- columns: path, doc_id
-- kind: table
SELECT path, MIN(doc_id) AS doc_id
FROM documents
GROUP BY path
