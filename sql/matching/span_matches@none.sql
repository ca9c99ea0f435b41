-- span_matches: as span_matches.sql, if no label is about places.
-- kind: view
SELECT 0 AS result_no, 0 AS position, 0 AS rank, '' AS chunk_id, '' AS place WHERE false
