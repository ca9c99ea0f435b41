-- ranked: one row a hit, beside the columns of its query in `answered`; a query with no hits has one row with no rank.
-- kind: view
-- columns: all of answered, and
--   position, rank, chunk_id, doc_id, score
--   is_expected_chunk      the best-ranked appearance of an expected chunk
--   is_expected_doc        the best-ranked appearance of an expected document
SELECT
    a.*,
    h.position,
    h.rank,
    h.chunk_id,
    h.doc_id,
    h.score,
    c.result_no IS NOT NULL AS is_expected_chunk,
    d.result_no IS NOT NULL AS is_expected_doc
FROM answered AS a
LEFT JOIN hits AS h ON h.result_no = a.result_no
LEFT JOIN chunk_matches AS c ON c.result_no = h.result_no AND c.position = h.position
LEFT JOIN doc_matches AS d ON d.result_no = h.result_no AND d.position = h.position
