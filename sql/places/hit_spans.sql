-- hit_spans: the position of each hit as rectangles on an axis.
-- columns: result_no, position, axis, low, high, bottom, top
-- kind: view
SELECT p.result_no, p.position, s.axis, s.low, s.high, s.bottom, s.top
FROM hit_places AS p
JOIN place_spans AS s ON s.text_key = span_key(p.spans_text)
