-- label_places: for each expected chunk the one that is meant, if several with its id were in the table `chunks`: the one
-- that was seen first, so that a chunker that reuses old ids does not change the meaning of a label.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (null: not known)
-- kind: table
SELECT chunk_id, chunker_version, policy_hash, doc_id, spans_text
FROM indexed_places
WHERE age = 1 AND chunk_id IN (SELECT chunk_id FROM expected_chunks)
