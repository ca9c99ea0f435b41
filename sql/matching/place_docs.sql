-- place_docs: every document that is known to answer a golden query: the expected ones, and those that the expected
-- places are in.
-- columns: query_id, doc_id (the path, if no id is known for it)
-- kind: table
SELECT query_id, doc_id FROM expected_docs
UNION
SELECT query_id, doc_id FROM expected_places WHERE doc_id IS NOT NULL
