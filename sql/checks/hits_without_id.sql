-- hits_without_id: hits that name neither a chunk nor a document, nor a known path.
-- columns: run_id, query_id, position
-- kind: view
SELECT r.run_id, r.query_id, h.position
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
LEFT JOIN hit_claims AS c ON c.result_no = h.result_no AND c.position = h.position
LEFT JOIN known_paths AS p ON p.path = c.path
WHERE NULLIF(h.chunk_id, '') IS NULL AND NULLIF(h.doc_id, '') IS NULL AND p.path IS NULL
