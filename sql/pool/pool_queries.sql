-- pool_queries: what determines the order of work, one row per query for which a run returned something.
-- columns: query_id, candidates, most_runs (among candidates with neither a label nor a decision, the number of runs that
--          returned the most common one; 0: there is none), open (the number of these candidates), disagreement (0 if all
--          runs return the same; near 1 if each returns something else)
-- kind: table
WITH answering AS (
    SELECT query_id, bit_count(bit_or(runs)) AS n_runs FROM pool_hits GROUP BY query_id
)

SELECT
    c.query_id,
    COUNT(*)                                                                     AS candidates,
    COALESCE(MAX(c.n_runs) FILTER (WHERE j.leader_no IS NULL), 0) AS most_runs,
    COUNT(*) FILTER (WHERE j.leader_no IS NULL)            AS open,
    CASE WHEN MAX(a.n_runs) > 1
         THEN 1 - SUM(c.n_runs - 1) FILTER (WHERE c.n_runs > 0)
                    / (COUNT(*) FILTER (WHERE c.n_runs > 0) * CAST(MAX(a.n_runs) - 1 AS DOUBLE))
         ELSE 0 END                                                              AS disagreement
FROM pool_candidates AS c
JOIN answering AS a ON a.query_id = c.query_id
LEFT JOIN pool_judged AS j ON j.leader_no = c.leader_no
GROUP BY c.query_id
