-- pool_results: the results of the runs to be pooled, one row per result.
-- columns: result_no, query_no, run_no, run_bit, chunker_version (of the run)
-- kind: table
SELECT r.result_no, q.query_no, n.run_no, n.run_bit, u.chunker_version
FROM results AS r
JOIN pool_query_numbers AS q ON q.query_id = r.query_id
JOIN pool_runs AS n ON n.run_id = r.run_id
JOIN runs AS u ON u.run_id = r.run_id
