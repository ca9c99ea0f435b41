-- impossible_numbers: rows with a time, a number of tokens or a cost that is impossible: negative, which is counted as it
-- is, or 1e15 and more, which is excluded.
-- columns: run_id, query_id
-- kind: view
SELECT run_id, query_id
FROM results
WHERE NOT (elapsed_ms >= 0 AND elapsed_ms < 1e15)
   OR NOT (tokens >= 0 AND tokens < 1e15)
   OR NOT (cost_usd >= 0 AND cost_usd < 1e15)
