-- tied_rankings: rankings in which a rank occurs more than once.
-- columns: run_id, query_id, rank (the first such rank)
-- kind: table
SELECT r.run_id, r.query_id, MIN(h.stored_rank) AS rank
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
WHERE h.rank <> h.stored_rank
GROUP BY r.run_id, r.query_id
