-- bad_rows: none. A trace that cannot be read is not scored at all.
-- kind: view
SELECT 0 AS result_no, '' AS run_id, '' AS query_id, '' AS fault
WHERE false
