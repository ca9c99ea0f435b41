-- unmet_queries: for each run, the number of queries whose labels and hits have different kinds of position, such as lines
-- and bytes, so that the document alone decides; for the ledger. Runs without such a query have no row.
-- columns: run_id, n
-- kind: table
SELECT r.run_id, COUNT(DISTINCT u.result_no) AS n
FROM unmet_hits AS u
JOIN results AS r ON r.result_no = u.result_no
JOIN matching AS m ON m.result_no = u.result_no
WHERE m.matching <> 'exact'
GROUP BY r.run_id
