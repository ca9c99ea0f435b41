-- unmet_labels: for each run, the queries in which hits near the answer have other kinds of position than the answer, so
-- that the document alone decides.
-- columns: run_id, place_kind, hit_kind, query_id (the first of them), n_queries
-- kind: view
SELECT r.run_id, u.place_kind, u.hit_kind, MIN(r.query_id) AS query_id, COUNT(DISTINCT r.query_id) AS n_queries
FROM unmet_hits AS u
JOIN results AS r ON r.result_no = u.result_no
JOIN matching AS m ON m.result_no = u.result_no
-- If chunk ids decide, positions do not matter.
WHERE m.matching <> 'exact'
GROUP BY r.run_id, u.place_kind, u.hit_kind
