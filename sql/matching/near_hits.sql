-- near_hits: the hits in a document that is known to answer their query, by its id or, if a label has no id, by its path.
-- columns: result_no, query_id, position, rank, chunk_id, doc_id, path, is_placed (it is known where in the document it is)
-- kind: table
WITH near AS (
    SELECT r.result_no, r.query_id, p.position, p.doc_id, p.path, p.spans_text
    FROM results AS r
    JOIN place_docs AS d ON d.query_id = r.query_id
    JOIN hit_places AS p ON p.result_no = r.result_no AND p.doc_id = d.doc_id

    UNION
    SELECT r.result_no, r.query_id, p.position, p.doc_id, p.path, p.spans_text
    FROM results AS r
    JOIN place_docs AS d ON d.query_id = r.query_id
    JOIN hit_places AS p ON p.result_no = r.result_no AND p.path = d.doc_id
)

SELECT
    n.result_no,
    n.query_id,
    n.position,
    h.rank,
    h.chunk_id,
    n.doc_id,
    n.path,
    n.spans_text IS NOT NULL AS is_placed
FROM near AS n
JOIN hits AS h ON h.result_no = n.result_no AND h.position = n.position
