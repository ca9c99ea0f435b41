-- unknown_docs: expected documents that neither a table nor a hit names. None if nothing names a document at all:
-- then there is nothing to check the labels against.
-- columns: doc_id
-- kind: view
WITH known AS (
    SELECT doc_id FROM documents
    UNION
    SELECT doc_id FROM chunks
    UNION
    SELECT doc_id FROM hits
)

SELECT DISTINCT doc_id
FROM expected_docs
WHERE doc_id NOT IN (SELECT doc_id FROM known WHERE doc_id IS NOT NULL)
  AND (
    (SELECT COUNT(*) FROM documents) + (SELECT COUNT(*) FROM chunks) + (SELECT COUNT(doc_id) FROM hits) > 0
  )
