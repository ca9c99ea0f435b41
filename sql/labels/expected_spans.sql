-- expected_spans: the places that answer a golden query as rectangles on an axis.
-- columns: query_id, place, axis, low, high, bottom, top
-- kind: table
SELECT
    query_id,
    place,
    span_axis(span.kind, span.page) AS axis,
    span_low(span)                  AS low,
    span_high(span)                 AS high,
    span_bottom(span)               AS bottom,
    span_top(span)                  AS top
FROM (SELECT query_id, place, UNNEST(spans_in(spans_text)) AS span FROM expected_places)
WHERE is_place(span)
