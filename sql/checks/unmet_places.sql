-- unmet_places: expected_spans that no hit can match: their document is unknown, or they lie beyond the end of its last
-- known chunk.
-- columns: query_id, place (which of the spans), doc_id, is_known (the document is), reach (the last known unit; null if
--          the document is unknown)
-- kind: view
WITH reached AS (
    SELECT doc_id, axis, MAX(high) AS reach
    FROM (
        SELECT doc_id, axis, high FROM chunk_spans
        UNION ALL
        SELECT p.doc_id, s.axis, s.high
        FROM hit_spans AS s
        JOIN hit_places AS p ON p.result_no = s.result_no AND p.position = s.position
    ) AS places
    GROUP BY doc_id, axis
),

labels AS (
    SELECT e.query_id, e.place, p.doc_id, e.axis, e.low
    FROM expected_spans AS e
    JOIN expected_places AS p ON p.query_id = e.query_id AND p.place = e.place AND p.is_span_label
)

SELECT l.query_id, l.place, l.doc_id, k.doc_id IS NOT NULL AS is_known, MAX(r.reach) AS reach
FROM labels AS l
LEFT JOIN document_names AS k ON k.doc_id = l.doc_id
LEFT JOIN reached AS r ON r.doc_id = l.doc_id AND r.axis = l.axis
GROUP BY l.query_id, l.place, l.doc_id, k.doc_id
HAVING (k.doc_id IS NULL AND (SELECT COUNT(*) FROM document_names) > 0) OR MIN(l.low) >= MAX(r.reach)
