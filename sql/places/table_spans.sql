-- table_spans: the spans in the table `chunks` and among the kept spans. Many chunks have the same text of spans, and each
-- distinct one is parsed once.
-- columns: text_key (of that text), kind, axis, low, high, bottom, top, is_place (false: it is not a position)
-- kind: table
-- variants: none, if no known chunk has spans
SELECT text_key, kind, axis, low, high, bottom, top, is_box(kind, axis, low, high, bottom, top, counted) AS is_place
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
        FROM (SELECT spans_text FROM chunks UNION SELECT spans_text FROM kept_chunks)
    )
)
