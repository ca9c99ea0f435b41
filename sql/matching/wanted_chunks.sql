-- wanted_chunks: the chunks that each result should have found.
-- columns: result_no, chunk_id
-- kind: table
SELECT r.result_no, e.chunk_id
FROM results AS r
JOIN expected_chunks AS e ON e.query_id = r.query_id
