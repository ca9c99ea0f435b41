-- hits: one row a retrieved chunk. A failed query has none.
-- columns: result_no, position, rank (as stored; the place in the list where none is), chunk_id, doc_id, score
-- kind: view
SELECT result_no, position, rank, chunk_id, doc_id, score
FROM parsed_hits
WHERE result_no NOT IN (SELECT result_no FROM results WHERE failed)
