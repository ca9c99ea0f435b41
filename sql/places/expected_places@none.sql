-- expected_places: as expected_places.sql, if no label is about places.
-- kind: view
SELECT '' AS query_id, '' AS place, '' AS doc_id, '' AS spans_text, false AS is_span_label WHERE false
