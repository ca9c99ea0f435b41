-- reused_ids: expected chunks whose id referred to different texts in different versions of the index.
-- columns: chunk_id, n_places
-- kind: view
SELECT k.chunk_id, COUNT(DISTINCT COALESCE(k.doc_id, '') || ' ' || k.spans_text) AS n_places
FROM known_chunks AS k
JOIN (SELECT DISTINCT chunk_id FROM expected_chunks) AS e ON e.chunk_id = k.chunk_id
WHERE k.spans_text IS NOT NULL
GROUP BY k.chunk_id
HAVING COUNT(DISTINCT COALESCE(k.doc_id, '') || ' ' || k.spans_text) > 1
