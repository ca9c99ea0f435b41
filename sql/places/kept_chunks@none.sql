-- kept_chunks: as kept_chunks.sql, if nothing has been kept.
-- kind: view
SELECT
    '' AS chunk_id, '' AS doc_id, '' AS chunker_version, '' AS policy_hash, '' AS spans_text, CAST(0 AS DOUBLE) AS tokens,
    '' AS seen_in, '' AS first_seen
WHERE false
