-- doc_paths: which document a path means, as the table `documents` says.
-- columns: path, doc_id
-- kind: table
SELECT path, MIN(doc_id) AS doc_id
FROM documents
GROUP BY path
