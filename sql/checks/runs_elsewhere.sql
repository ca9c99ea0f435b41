-- runs_elsewhere: runs without any hit in a document in which a label names a place.
-- columns: run_id, n_hits, n_named (hits whose document is known), hit_doc, label_doc (one of each)
-- kind: view
WITH labelled AS (
    SELECT DISTINCT doc_id FROM expected_places WHERE is_span_label AND doc_id IS NOT NULL
)

SELECT
    r.run_id,
    COUNT(*)                           AS n_hits,
    COUNT(COALESCE(h.doc_id, h.path))  AS n_named,
    MIN(COALESCE(h.doc_id, h.path))    AS hit_doc,
    (SELECT MIN(doc_id) FROM labelled) AS label_doc
FROM hit_places AS h
JOIN results AS r ON r.result_no = h.result_no
LEFT JOIN labelled AS d ON d.doc_id = h.doc_id
LEFT JOIN labelled AS p ON p.doc_id = h.path
WHERE (SELECT COUNT(*) FROM labelled) > 0
GROUP BY r.run_id
HAVING COUNT(COALESCE(d.doc_id, p.doc_id)) = 0
