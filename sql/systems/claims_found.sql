-- claims_found: the answers that contain a gold claim.
-- columns: result_no, n (how many of the claims it contains)
-- kind: table
SELECT r.result_no, COUNT(*) AS n
FROM results AS r
JOIN claim_rules AS c ON c.query_id = r.query_id
JOIN folded_answers AS a ON a.result_no = r.result_no
WHERE CONTAINS(a.answer, c.needle)
GROUP BY r.result_no
