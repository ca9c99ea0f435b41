-- rows_without_query: stored rows whose query is not in the golden file.
-- columns: run_id, query_id
-- kind: view
SELECT r.run_id, r.query_id
FROM results AS r
LEFT JOIN queries AS q ON q.query_id = r.query_id
WHERE q.query_id IS NULL
