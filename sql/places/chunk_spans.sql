-- chunk_spans: the location of each known chunk in its document, as rectangles on an axis.
-- columns: chunk_id, doc_id, axis, low, high, bottom, top
-- kind: table
SELECT
    chunk_id,
    doc_id,
    span_axis(span.kind, span.page) AS axis,
    span_low(span)                  AS low,
    span_high(span)                 AS high,
    span_bottom(span)               AS bottom,
    span_top(span)                  AS top
FROM (SELECT chunk_id, doc_id, UNNEST(spans_in(spans_text)) AS span FROM known_chunks)
WHERE is_place(span)
