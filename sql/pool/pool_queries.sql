-- pool_queries: what the order of work is decided by, one row per query that a run returned something for.
-- columns: query_id, candidates, most_runs (of the candidates that no label names and that were not decided on, how many runs
--          returned the most common one; 0: there is none), open (how many those are), disagreement (0 where all runs
--          return the same; near 1 where each returns something else)
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
