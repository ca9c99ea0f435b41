-- doc_matches: the hits in an expected document, each document once, at its best rank.
-- columns: result_no, position, rank
-- kind: table
WITH found AS (
    SELECT h.result_no, h.doc_id, h.rank, h.position
    FROM results AS r
    JOIN expected_docs AS e ON e.query_id = r.query_id
    JOIN hit_docs AS h ON h.result_no = r.result_no AND h.doc_id = e.doc_id
),

best AS (
    SELECT result_no, doc_id, MIN(rank) AS rank, MIN(position) AS position, COUNT(*) AS n
    FROM found
    GROUP BY result_no, doc_id
)

SELECT result_no, position, rank
FROM best
WHERE n = 1

-- Only duplicates need a second step: the position of the best rank.
UNION ALL
SELECT b.result_no, MIN(f.position), b.rank
FROM best AS b
JOIN found AS f ON f.result_no = b.result_no AND f.doc_id = b.doc_id AND f.rank = b.rank
WHERE b.n > 1
GROUP BY b.result_no, b.doc_id, b.rank
