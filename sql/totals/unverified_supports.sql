-- unverified_supports: for each run, the number of hits that count as a support although their stored text does not show
-- it: it was cut short, or not kept.
-- columns: run_id, n (a run without any such match, verified or not, has no row)
-- kind: view
SELECT r.run_id, COUNT(CASE WHEN NOT s.is_verified THEN 1 END) AS n
FROM support_hits AS s
JOIN results AS r ON r.result_no = s.result_no
GROUP BY r.run_id
