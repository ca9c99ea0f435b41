-- label_axes: the kinds of position that the expected_spans of each golden query use.
-- columns: query_id, axis ('page' for any page)
-- kind: table
SELECT DISTINCT query_id, CASE WHEN axis LIKE 'page %' THEN 'page' ELSE axis END AS axis
FROM (
    SELECT query_id, span_axis(span.kind, span.page) AS axis
    FROM (
        SELECT e.id AS query_id, UNNEST(spans_in(CAST(to_json(e.expected_spans) AS VARCHAR))) AS span
        FROM golden_entries
    )
    WHERE is_place(span)
)
