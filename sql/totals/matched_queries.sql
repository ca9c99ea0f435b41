-- matched_queries: for each run that is not matched by id, the number of queries per kind of matching.
-- columns: run_id, n_by_span, n_by_doc, n_unmatched
-- kind: table
SELECT
    u.run_id,
    COUNT(CASE WHEN m.matching = 'span' THEN 1 END)      AS n_by_span,
    COUNT(CASE WHEN m.matching = 'doc' THEN 1 END)       AS n_by_doc,
    COUNT(CASE WHEN m.matching = 'unmatched' THEN 1 END) AS n_unmatched
FROM run_matching AS u
LEFT JOIN results AS r ON r.run_id = u.run_id
LEFT JOIN matching AS m ON m.result_no = r.result_no
WHERE u.matching <> 'exact'
GROUP BY u.run_id
