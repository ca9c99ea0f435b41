-- doc_matches: the hits that bring an expected document, each document once, at its best rank.
-- columns: result_no, position
-- kind: table
SELECT result_no, position
FROM (
    SELECT
        h.result_no,
        h.position,
        ROW_NUMBER() OVER (PARTITION BY h.result_no, h.doc_id ORDER BY h.rank, h.position) AS appearance
    FROM results AS r
    JOIN expected_docs AS e ON e.query_id = r.query_id
    JOIN hits AS h ON h.result_no = r.result_no AND h.doc_id = e.doc_id
) AS found
WHERE appearance = 1
