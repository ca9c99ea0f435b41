-- moved_chunks: as moved_chunks.sql, if the text of every kept place is the same as in the table.
-- kind: view
SELECT chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens, seen_in
FROM kept_chunks
WHERE false
