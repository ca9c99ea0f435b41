-- odd_runs: runs without any hits, or with empty answers only. Their fields may have other names than those that are read.
-- columns: run_id
-- kind: view
SELECT run_id
FROM results
WHERE NOT failed
GROUP BY run_id
HAVING MAX(n_hits) = 0
    OR (
        MAX(CASE WHEN has_answer THEN 1 END) = 1
        AND MIN(CASE WHEN has_answer AND NOT is_empty THEN 0 ELSE 1 END) = 1
    )
