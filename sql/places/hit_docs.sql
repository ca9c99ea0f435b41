-- hit_docs: as hits, with the document of each hit resolved (see hit_places).
-- columns: as in hits
-- kind: table
-- variants: named, if every hit names its document
SELECT
    h.result_no,
    h.position,
    h.rank,
    h.chunk_id,
    COALESCE(h.doc_id, p.doc_id) AS doc_id,
    h.score,
    h.chunker_version,
    h.token_count
FROM hits AS h
LEFT JOIN hit_places AS p ON p.result_no = h.result_no AND p.position = h.position
