-- judgeable: the answers that a judge is asked about: those with a text that are neither a refusal nor a failure.
-- columns: result_no, run_id, query_id, row_mark
-- kind: view
SELECT result_no, run_id, query_id, row_mark
FROM results
WHERE has_answer AND NOT failed AND NOT is_empty AND NOT COALESCE(refused, false)
