-- near_hits: the hits in a document that is known to answer their query.
-- columns: result_no, query_id, position, rank, chunk_id, doc_id, is_placed (it is known where in the document it is)
-- kind: table
SELECT
    r.result_no,
    r.query_id,
    h.position,
    h.rank,
    h.chunk_id,
    p.doc_id,
    p.spans_text IS NOT NULL AS is_placed
FROM results AS r
JOIN place_docs AS d ON d.query_id = r.query_id
JOIN hit_places AS p ON p.result_no = r.result_no AND p.doc_id = d.doc_id
JOIN hits AS h ON h.result_no = p.result_no AND h.position = p.position
