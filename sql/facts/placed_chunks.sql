-- placed_chunks: the expected chunks of which the table `chunks` or the archive knows where they stood.
-- columns: chunk_id, doc_id, spans_text
-- kind: table
SELECT chunk_id, doc_id, spans_text
FROM (
    SELECT chunk_id, doc_id, COALESCE(usable_spans(spans_text), usable_spans(archived_text)) AS spans_text
    FROM label_places
)
WHERE spans_text IS NOT NULL
