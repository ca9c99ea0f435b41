-- expected_docs: the documents that answer a golden query, each once.
-- columns: query_id, doc_id
-- kind: table
SELECT
    e.id                                  AS query_id,
    UNNEST(different(e.expected_doc_ids)) AS doc_id
FROM golden_entries
