-- rank_gaps: rankings in which ranks are missing.
-- columns: run_id, query_id, last_rank, n_hits
-- kind: view
SELECT r.run_id, r.query_id, MAX(h.rank) AS last_rank, COUNT(*) AS n_hits
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
GROUP BY r.run_id, r.query_id
HAVING MAX(h.rank) <> COUNT(DISTINCT h.rank)
