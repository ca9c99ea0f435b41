-- repeated_chunks: chunks that a ranking contains more than once.
-- columns: run_id, query_id, chunk_id
-- kind: view
SELECT r.run_id, r.query_id, h.chunk_id
FROM repeated_hits AS h
JOIN results AS r ON r.result_no = h.result_no
