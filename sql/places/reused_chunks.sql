-- reused_chunks: ids that the table `chunks` uses for other text than it did before, under the same chunker version and
-- policy. The meaning of such an id depends on the index that it was read from.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (its place in the table now)
-- kind: table
SELECT n.chunk_id, n.chunker_version, n.policy_hash, n.doc_id, n.spans_text
FROM (SELECT DISTINCT chunk_id, chunker_version, policy_hash FROM indexed_places WHERE NOT is_in_table) AS b
JOIN indexed_places AS n
    ON  n.chunk_id = b.chunk_id
    AND n.chunker_version = b.chunker_version
    AND n.policy_hash = b.policy_hash
WHERE n.is_in_table
