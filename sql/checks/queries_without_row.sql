-- queries_without_row: golden queries that a run has no row for.
-- columns: run_id, query_id
-- kind: view
SELECT u.run_id, q.query_id
FROM runs AS u
CROSS JOIN queries AS q
LEFT JOIN results AS r ON r.run_id = u.run_id AND r.query_id = q.query_id
WHERE r.result_no IS NULL
