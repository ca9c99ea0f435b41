-- per_hit: one row per hit, with the columns of its query in `per_query`; a query without hits has one row without rank.
-- kind: view
-- shown: yes
-- columns: all of per_query, and
--   position, rank, chunk_id, doc_id, score
--   is_expected_chunk      the best-ranked appearance of an expected chunk
--   is_expected_doc        the best-ranked appearance of an expected document
--   is_support             the best-ranked appearance of a chunk that is a gold support
--   n_places               expected chunks, or expected places, that no earlier hit has found
SELECT
    a.*,
    h.position,
    h.rank,
    h.chunk_id,
    h.doc_id,
    h.score,
    COALESCE(e.is_expected_chunk, false) AS is_expected_chunk,
    COALESCE(e.is_expected_doc, false)   AS is_expected_doc,
    COALESCE(e.is_support, false)        AS is_support,
    COALESCE(e.n_places, 0)              AS n_places
FROM per_query AS a
LEFT JOIN hit_docs AS h ON h.result_no = a.result_no
LEFT JOIN expected_hits AS e ON e.result_no = h.result_no AND e.position = h.position
