-- known_chunks: every chunk that is or was real: the table `chunks`, and what was archived from it.
-- columns: chunk_id, doc_id, chunker_version, spans_text
-- kind: table
SELECT chunk_id, doc_id, chunker_version, spans_text
FROM chunks

UNION ALL
SELECT a.chunk_id, a.doc_id, a.chunker_version, a.spans_text
FROM archived_chunks AS a
LEFT JOIN chunks AS c ON c.chunk_id = a.chunk_id AND c.chunker_version = a.chunker_version
WHERE a.seen_in = 'chunks' AND c.chunk_id IS NULL
