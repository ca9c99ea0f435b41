-- wanted_docs: the documents that each result should have brought.
-- columns: result_no, doc_id
-- kind: table
SELECT r.result_no, e.doc_id
FROM results AS r
JOIN expected_docs AS e ON e.query_id = r.query_id
