-- missing_queries: golden queries that a run has no row for. Only if missing queries count as zero, and in traces of
-- grounded answering, where they always count.
-- columns: result_no (negative: no stored row), run_id, query_id
-- kind: table
SELECT
    -ROW_NUMBER() OVER (ORDER BY r.run_id, q.query_id) AS result_no,
    r.run_id,
    q.query_id
FROM settings AS s
JOIN runs AS r ON s.missing_as_zero OR r.system = 'grounded'
CROSS JOIN queries AS q
LEFT JOIN results AS f ON f.run_id = r.run_id AND f.query_id = q.query_id
WHERE f.result_no IS NULL
