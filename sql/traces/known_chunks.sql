-- known_chunks: as sql/places/known_chunks.sql: none, because next to a trace there is no knowledge base.
-- kind: view
SELECT '' AS chunk_id, '' AS doc_id, '' AS chunker_version, '' AS spans_text WHERE false
