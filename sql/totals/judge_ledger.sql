-- judge_ledger: for each run and rubric, the outcome of its rows: judged, unscored, or not judged.
-- columns: run_id, rubric, n_judged, n_unscored, n_not_judged, n_cached (of those judged or unscored)
-- kind: view
SELECT
    g.run_id,
    g.rubric,
    COUNT(CASE WHEN j.is_scored THEN 1 END)        AS n_judged,
    COUNT(CASE WHEN NOT j.is_scored THEN 1 END)    AS n_unscored,
    COUNT(CASE WHEN j.result_no IS NULL THEN r.result_no END) AS n_not_judged,
    COUNT(CASE WHEN j.is_cached THEN 1 END)        AS n_cached
FROM judgings AS g
JOIN results AS r ON r.run_id = g.run_id
LEFT JOIN judgements AS j ON j.result_no = r.result_no AND j.rubric = g.rubric
WHERE g.is_chosen
GROUP BY g.run_id, g.rubric
