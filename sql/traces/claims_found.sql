-- claims_found: as sql/systems/claims_found.sql. A trace has its answer next to its question.
-- kind: table
SELECT t.rowid AS result_no, COUNT(*) AS n
FROM traces AS t
JOIN claim_rules AS c ON c.query_id = t.query_id
WHERE CONTAINS(folded(t.claim), c.needle)
GROUP BY t.rowid
