-- chunks: the chunks that the knowledge base holds now.
-- columns: chunk_id, doc_id, chunker_version, spans (as stored; chunk_spans has them one a row)
-- kind: table
SELECT
    CAST(chunk_id AS VARCHAR)        AS chunk_id,
    CAST(doc_id AS VARCHAR)          AS doc_id,
    CAST(chunker_version AS VARCHAR) AS chunker_version,
    TRY(from_json(CAST(source_spans_json AS VARCHAR), '[{
        "kind": "VARCHAR", "page": "DOUBLE",
        "start": "DOUBLE", "end": "DOUBLE", "line_start": "DOUBLE", "line_end": "DOUBLE",
        "start_ms": "DOUBLE", "end_ms": "DOUBLE", "char_start": "DOUBLE", "char_end": "DOUBLE",
        "x": "DOUBLE", "y": "DOUBLE", "w": "DOUBLE", "h": "DOUBLE"
    }]'))                            AS spans
FROM stored_chunks
