-- malformed_spans: hits with source_spans of which at least one is not a valid position, so that it does not locate the
-- hit.
-- columns: run_id, query_id, position
-- kind: view
SELECT r.run_id, r.query_id, c.position
FROM hit_claims AS c
JOIN results AS r ON r.result_no = c.result_no
WHERE c.has_bad_spans
