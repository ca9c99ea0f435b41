-- chunk_spans: the location of each known chunk in its document, as rectangles on an axis.
-- columns: chunk_id, doc_id, axis, low, high, bottom, top
-- kind: table
SELECT c.chunk_id, c.doc_id, s.axis, s.low, s.high, s.bottom, s.top
FROM known_chunks AS c
JOIN table_spans AS s ON s.text_key = span_key(c.spans_text)
WHERE s.is_place
