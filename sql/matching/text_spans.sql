-- text_spans: for queries that are labelled by expected_spans, the text that is expected and the text of every hit.
-- columns: result_no, rank (null: expected text), doc_id (as the label names it), axis (null: the place of the hit is
--          unknown), low, high, bottom, top, unit (of sizes on this axis), is_near (it is in a document of
--          the labels, or in an unknown one)
-- kind: table
WITH asked AS (
    SELECT result_no, query_id FROM results
    UNION ALL
    SELECT result_no, query_id FROM missing_queries
),

expected AS (
    SELECT a.result_no, p.doc_id, e.axis, e.low, e.high, e.bottom, e.top
    FROM asked AS a
    JOIN expected_places AS p ON p.query_id = a.query_id AND p.is_span_label
    JOIN expected_spans AS e ON e.query_id = p.query_id AND e.place = p.place
),

docs AS (
    SELECT result_no, doc_id FROM expected GROUP BY result_no, doc_id
),

asking AS (
    SELECT result_no FROM docs GROUP BY result_no
),

found AS (
    SELECT
        h.result_no,
        h.rank,
        COALESCE(d.doc_id, n.doc_id, p.doc_id)                               AS doc_id,
        s.axis, s.low, s.high, s.bottom, s.top,
        d.doc_id IS NOT NULL OR n.doc_id IS NOT NULL OR p.doc_id IS NULL     AS is_near
    FROM asking AS a
    JOIN hits AS h ON h.result_no = a.result_no
    JOIN hit_places AS p ON p.result_no = h.result_no AND p.position = h.position
    LEFT JOIN docs AS d ON d.result_no = h.result_no AND d.doc_id = p.doc_id
    -- A label may name its document only by path.
    LEFT JOIN docs AS n ON n.result_no = h.result_no AND n.doc_id = p.path
    LEFT JOIN hit_spans AS s ON s.result_no = h.result_no AND s.position = h.position
),

every_span AS (
    SELECT result_no, CAST(NULL AS BIGINT) AS rank, doc_id, axis, low, high, bottom, top, true AS is_near FROM expected
    UNION ALL
    SELECT result_no, rank, doc_id, axis, low, high, bottom, top, is_near FROM found
)

SELECT
    result_no, rank, doc_id, axis, low, high, bottom, top, is_near,
    -- A whole page has no number of characters, so it is counted in pages.
    CASE
        WHEN axis LIKE 'page %' AND high >= 1e15 THEN 'page'
        WHEN axis LIKE 'page %'                  THEN 'page characters'
        ELSE axis
    END AS unit
FROM every_span
