-- rows_without_hits: rows that do not state whether anything was retrieved (they have no `hits_top_k`, or it is not a
-- list), in runs that do retrieve. They count as misses.
-- columns: run_id, query_id
-- kind: view
SELECT r.run_id, r.query_id
FROM results AS r
JOIN runs AS u ON u.run_id = r.run_id AND u.system IS NULL
JOIN (SELECT run_id FROM results GROUP BY run_id HAVING MAX(n_hits) > 0) AS w ON w.run_id = r.run_id
WHERE NOT r.lists_hits AND NOT r.failed
