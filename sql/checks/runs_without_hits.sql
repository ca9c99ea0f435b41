-- runs_without_hits: runs without any hits whose sampled rows do not state that nothing was retrieved: they have no field
-- `hits_top_k`, which is an empty list in a row that retrieved nothing.
-- columns: run_id, n_rows (those without an error)
-- kind: table
SELECT r.run_id, COUNT(*) AS n_rows
FROM results AS r
LEFT JOIN (
    SELECT DISTINCT run_id
    FROM row_fields
    WHERE level = 'row' AND field = 'hits_top_k'
) AS h ON h.run_id = r.run_id
WHERE NOT r.failed AND h.run_id IS NULL
GROUP BY r.run_id
HAVING MAX(r.n_hits) = 0
