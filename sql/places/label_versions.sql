-- label_versions: every chunker version and policy that is known to have made an expected chunk.
-- columns: chunk_id, chunker_version, policy_hash ('': not known), is_in_table (the table `chunks` contains it now),
--          doc_id, spans_text (null: not known)
-- kind: table
SELECT chunk_id, chunker_version, policy_hash, is_in_table, doc_id, spans_text
FROM indexed_places
WHERE chunk_id IN (SELECT chunk_id FROM expected_chunks)

UNION ALL
SELECT DISTINCT chunk_id, chunker_version, '', false, CAST(NULL AS VARCHAR), CAST(NULL AS VARCHAR)
FROM sightings
WHERE chunker_version IS NOT NULL
  AND chunk_id NOT IN (SELECT chunk_id FROM indexed_places)
