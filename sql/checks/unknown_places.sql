-- unknown_places: queries labelled by a place in a document that neither a table nor a hit knows, so no hit can match it.
-- columns: query_id, doc_id (as the label names it)
-- kind: view
SELECT DISTINCT p.query_id, p.doc_id
FROM expected_places AS p
LEFT JOIN document_names AS k ON k.doc_id = p.doc_id
WHERE p.is_span_label AND k.doc_id IS NULL AND (SELECT COUNT(*) FROM document_names) > 0
