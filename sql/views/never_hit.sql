-- never_hit: golden queries that expect something, and that no run ever found.
-- columns: query_id, query, category, n_runs (that asked it; 0: no run did), n_failed, best_doc_rank (the best rank of a
--          hit in an expected document; null: none)
-- kind: view
-- shown: yes
-- example: SELECT query_id, query, n_runs, best_doc_rank FROM never_hit ORDER BY n_runs DESC, query_id
SELECT
    q.query_id,
    q.query,
    q.category,
    COUNT(s.run_id)                      AS n_runs,
    COUNT(CASE WHEN s.failed THEN 1 END) AS n_failed,
    MIN(s.doc_rank)                      AS best_doc_rank
FROM queries AS q
LEFT JOIN sides AS s ON s.query_id = q.query_id
WHERE q.n_expected_chunks + q.n_expected_docs + q.n_expected_spans + q.n_supports > 0
GROUP BY q.query_id, q.query, q.category
HAVING COUNT(s.hit_rank) = 0
