-- run_depths: how deep the stored hits of each run go.
-- columns: run_id, depth (the highest rank of a hit of the run; a run without hits has no row)
-- kind: view
SELECT r.run_id, MAX(h.rank) AS depth
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
GROUP BY r.run_id
