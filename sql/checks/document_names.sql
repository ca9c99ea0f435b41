-- document_names: every name of a document in a table or a hit: ids and paths.
-- columns: doc_id
-- kind: view
SELECT doc_id FROM documents WHERE doc_id IS NOT NULL
UNION
SELECT path FROM doc_paths
UNION
SELECT doc_id FROM known_chunks WHERE doc_id IS NOT NULL
UNION
SELECT doc_id FROM hit_places WHERE doc_id IS NOT NULL
UNION
SELECT path FROM hit_places WHERE path IS NOT NULL
