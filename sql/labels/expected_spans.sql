-- expected_spans: the places that answer a golden query as rectangles on an axis.
-- columns: query_id, place, axis, low, high, bottom, top
-- kind: table
SELECT p.query_id, p.place, s.axis, s.low, s.high, s.bottom, s.top
FROM expected_places AS p
JOIN place_spans AS s ON s.text_key = span_key(p.spans_text)
