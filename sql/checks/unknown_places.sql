-- unknown_places: queries labelled by a place in a document that neither a table nor a hit knows, so that no hit can meet it.
-- columns: query_id, doc_id (as the label names it)
-- kind: view
WITH known AS (
    SELECT doc_id FROM documents WHERE doc_id IS NOT NULL
    UNION
    SELECT path FROM doc_paths
    UNION
    SELECT doc_id FROM known_chunks WHERE doc_id IS NOT NULL
    UNION
    SELECT doc_id FROM hit_places WHERE doc_id IS NOT NULL
    UNION
    SELECT path FROM hit_places WHERE path IS NOT NULL
)

SELECT DISTINCT p.query_id, p.doc_id
FROM expected_places AS p
LEFT JOIN known AS k ON k.doc_id = p.doc_id
WHERE p.is_span_label AND k.doc_id IS NULL AND (SELECT COUNT(*) FROM known) > 0
