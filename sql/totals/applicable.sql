-- applicable: for each run, the number of queries that each metric applies to, whether its value is null or not.
-- columns: run_id, then for each metric the number of queries
-- kind: view
--
-- Composed: {counts} is, for each metric, COUNT(CASE WHEN <where> THEN 1 END).
SELECT
    run_id,
    {counts}
FROM per_query
GROUP BY run_id
ORDER BY run_id
