-- tied_rankings: rankings in which a rank stands more than once.
-- columns: run_id, query_id, rank (the first such rank)
-- kind: view
SELECT r.run_id, r.query_id, MIN(h.stored_rank) AS rank
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
WHERE h.rank <> h.stored_rank
GROUP BY r.run_id, r.query_id
