-- doc_matches_only: for each run, how many queries expect a chunk or a place and were matched by document alone.
-- columns: run_id, n_queries, n_by_doc, query_id (the first)
-- kind: view
SELECT
    r.run_id,
    COUNT(*)                                                    AS n_queries,
    COUNT(CASE WHEN m.matching = 'doc' THEN 1 END)              AS n_by_doc,
    MIN(CASE WHEN m.matching = 'doc' THEN r.query_id END)       AS query_id
FROM matching AS m
JOIN results AS r ON r.result_no = m.result_no
JOIN queries AS q ON q.query_id = r.query_id AND q.n_expected_chunks + q.n_expected_spans > 0
GROUP BY r.run_id
