-- placed_chunks: the expected chunks of which the table `chunks`, as it is or as it was, knows where they stood.
-- columns: chunk_id, doc_id, spans_text
-- kind: table
SELECT chunk_id, doc_id, spans_text
FROM label_places
WHERE spans_text IS NOT NULL
