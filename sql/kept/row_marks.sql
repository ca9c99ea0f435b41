-- row_marks: the marks (hashes) of the rows of each run, to be kept.
-- columns: run_id, marks (a JSON object: the mark of each query's row, as text)
-- kind: view
SELECT
    run_id,
    '{' || string_agg(CAST(to_json(query_id) AS VARCHAR) || ':"' || row_mark || '"', ',' ORDER BY query_id) || '}' AS marks
FROM results
GROUP BY run_id
