-- place_spans: the positions of expected places and of hits, as rectangles on an axis; each distinct text of spans is
-- parsed once.
-- columns: text_key (of that text), axis, low, high, bottom, top
-- kind: table
SELECT text_key, axis, low, high, bottom, top
FROM (
    SELECT
        text_key,
        span.kind                       AS kind,
        span_axis(span.kind, span.page) AS axis,
        span_low(span)                  AS low,
        span_high(span)                 AS high,
        span_bottom(span)               AS bottom,
        span_top(span)                  AS top,
        is_counted(span)                AS counted
    FROM (
        SELECT span_key(spans_text) AS text_key, UNNEST(spans_in(spans_text)) AS span
        FROM place_texts
    )
)
WHERE is_box(kind, axis, low, high, bottom, top, counted)
