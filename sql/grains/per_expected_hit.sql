-- per_expected_hit: as `per_hit`, only the hits that some label expects; a query with none has one row without rank.
-- kind: view
-- columns: all of per_query, and
--   position, rank
--   is_expected_chunk      the best-ranked appearance of an expected chunk
--   is_expected_doc        the best-ranked appearance of an expected document
--   is_support             the best-ranked appearance of a chunk that is a gold support
--   n_places               expected chunks, or expected places, that no earlier hit has found
--
-- Most metrics need nothing else, and these rows are few: this is where most of the speed comes from.
SELECT
    a.*,
    h.position,
    h.rank,
    COALESCE(h.is_expected_chunk, false) AS is_expected_chunk,
    COALESCE(h.is_expected_doc, false)   AS is_expected_doc,
    COALESCE(h.is_support, false)        AS is_support,
    COALESCE(h.n_places, 0)              AS n_places
FROM per_query AS a
LEFT JOIN expected_hits AS h ON h.result_no = a.result_no
