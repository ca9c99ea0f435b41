-- pool_chunks: the chunks whose place is unambiguous in the tables, one row per id and version.
-- columns: chunk_id, chunker_version, doc_id, spans_text
-- kind: table
SELECT chunk_id, chunker_version, MIN(doc_id) AS doc_id, MIN(spans_text) AS spans_text
FROM known_chunks
GROUP BY chunk_id, chunker_version
HAVING COUNT(*) = 1 AND MIN(spans_text) IS NOT NULL AND MIN(doc_id) IS NOT NULL
