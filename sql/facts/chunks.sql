-- chunks: the chunks that the knowledge base holds now.
-- columns: chunk_id, doc_id, chunker_version, spans_text (as stored; null: there are none)
-- kind: table
SELECT
    CAST(chunk_id AS VARCHAR)                                             AS chunk_id,
    NULLIF(CAST(doc_id AS VARCHAR), '')                                   AS doc_id,
    CAST(chunker_version AS VARCHAR)                                      AS chunker_version,
    NULLIF(NULLIF(CAST(source_spans_json AS VARCHAR), ''), '[]')          AS spans_text
FROM stored_chunks
