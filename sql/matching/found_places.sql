-- found_places: which of the expected places each result found, and at which rank.
-- columns: result_no, position, rank, place (a chunk's id, a span's or support's name, a document's id), chunk_id (the hit's)
-- kind: table
SELECT m.result_no, i.position, i.rank, i.place, i.place AS chunk_id
FROM matching AS m
JOIN id_matches AS i ON i.result_no = m.result_no
WHERE m.matching = 'exact'

UNION ALL
SELECT m.result_no, s.position, s.rank, s.place, s.chunk_id
FROM matching AS m
JOIN span_matches AS s ON s.result_no = m.result_no
WHERE m.matching = 'span'

UNION ALL
SELECT m.result_no, n.position, n.rank, n.doc_id, n.chunk_id
FROM matching AS m
JOIN near_hits AS n ON n.result_no = m.result_no
WHERE m.matching = 'doc'

UNION ALL
SELECT m.result_no, s.position, s.rank, CONCAT('support ', CAST(s.support_no AS STRING)), s.chunk_id
FROM matching AS m
JOIN support_hits AS s ON s.result_no = m.result_no
WHERE m.matching = 'support'
