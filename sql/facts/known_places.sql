-- known_places: the best that the tables know about where a chunk of one chunker version stood.
-- columns: chunk_id, chunker_version, doc_id, spans_text, first_seen (null: not archived yet)
-- kind: table
SELECT
    COALESCE(c.chunk_id, a.chunk_id)               AS chunk_id,
    COALESCE(c.chunker_version, a.chunker_version) AS chunker_version,
    COALESCE(c.doc_id, a.doc_id)                   AS doc_id,
    COALESCE(c.spans_text, a.spans_text)           AS spans_text,
    a.first_seen
FROM chunks AS c
FULL JOIN archived_chunks AS a ON a.chunk_id = c.chunk_id AND a.chunker_version = c.chunker_version
