-- chunks: as chunks.sql, if the table is missing or empty.
-- kind: view
SELECT '' AS chunk_id, '' AS doc_id, '' AS chunker_version, '' AS policy_hash, '' AS spans_text, CAST(0 AS DOUBLE) AS tokens
WHERE false
