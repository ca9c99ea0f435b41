-- claims_found: the answers that hold a gold claim.
-- columns: result_no, n (how many of its claims it holds)
-- kind: table
SELECT r.result_no, COUNT(*) AS n
FROM results AS r
JOIN claim_rules AS c ON c.query_id = r.query_id
JOIN answers AS a ON a.result_no = r.result_no
-- As folded() makes the needles; answers are normalised.
WHERE CONTAINS(REPLACE(LOWER(a.answer), 'ς', 'σ'), c.needle)
GROUP BY r.result_no
