-- doc_matches: the hits in an expected document, each document once, at its best rank.
-- columns: result_no, position, rank
-- kind: table
SELECT
    h.result_no,
    -- No two hits of a ranking have the same rank.
    MIN_BY(h.position, h.rank) AS position,
    MIN(h.rank)                AS rank
FROM results AS r
JOIN expected_docs AS e ON e.query_id = r.query_id
JOIN hit_docs AS h ON h.result_no = r.result_no AND h.doc_id = e.doc_id
GROUP BY h.result_no, h.doc_id
