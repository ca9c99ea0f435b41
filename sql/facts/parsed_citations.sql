-- parsed_citations: one row a stored citation, its fields as they stand.
-- columns: result_no, citation_no, chunk_id, citation
-- kind: view
SELECT
    result_no,
    UNNEST(range(1, len(r.answer.citations) + 1)) AS citation_no,
    UNNEST(r.answer.citations, max_depth := 2)
FROM parsed
