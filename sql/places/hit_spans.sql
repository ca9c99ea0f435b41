-- hit_spans: the position of each hit as rectangles on an axis.
-- columns: result_no, position, axis, low, high, bottom, top
-- kind: view
SELECT p.result_no, p.position, s.axis, s.low, s.high, s.bottom, s.top
FROM hit_places AS p
-- As the macro span_key.
JOIN place_spans AS s ON s.text_key = CASE WHEN LENGTH(p.spans_text) <= 100 THEN p.spans_text ELSE MD5(p.spans_text) END
