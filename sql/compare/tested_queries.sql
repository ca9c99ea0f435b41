-- tested_queries: the queries on which two runs are tested against each other: those that count in both. If missing queries
-- count as zero, they count here too, so that intervals and tests are based on the same queries as A, B and the delta.
-- columns: query_id, a_result_no, b_result_no (negative: the run has no row for it), cluster_no, matching
-- kind: table
SELECT
    a.query_id,
    a.result_no AS a_result_no,
    b.result_no AS b_result_no,
    DENSE_RANK() OVER (ORDER BY COALESCE(k.cluster_id, a.query_id)) AS cluster_no,
    p.matching
FROM comparison AS c
JOIN per_query AS a ON a.run_id = c.run_a AND a.is_counted
JOIN per_query AS b ON b.run_id = c.run_b AND b.is_counted AND b.query_id = a.query_id
LEFT JOIN clusters AS k ON k.query_id = a.query_id
LEFT JOIN pairs AS p ON p.query_id = a.query_id
