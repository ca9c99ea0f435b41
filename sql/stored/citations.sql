-- citations: one row per citation in an answer, and the document that its path refers to.
-- columns: result_no, citation_no, chunk_id, doc_id (of the path), axis (null: only a path), low, high, bottom, top,
--          is_malformed
-- kind: view
SELECT c.result_no, c.citation_no, c.chunk_id, d.doc_id, c.axis, c.low, c.high, c.bottom, c.top, c.is_malformed
FROM cited_places AS c
LEFT JOIN documents AS d ON d.path = c.path
