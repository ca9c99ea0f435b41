-- known_chunks: as sql/places/known_chunks.sql: none, because a trace has no knowledge base.
-- kind: view
SELECT '' AS chunk_id, '' AS doc_id, '' AS chunker_version, '' AS spans_text WHERE false
