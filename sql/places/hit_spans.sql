-- hit_spans: the position of each hit as rectangles on an axis.
-- columns: result_no, position, axis, low, high, bottom, top
-- kind: view
SELECT
    result_no,
    position,
    span_axis(span.kind, span.page) AS axis,
    span_low(span)                  AS low,
    span_high(span)                 AS high,
    span_bottom(span)               AS bottom,
    span_top(span)                  AS top
FROM (SELECT result_no, position, UNNEST(spans_in(spans_text)) AS span FROM hit_places)
WHERE is_place(span)
