-- told_places: for hits that name a reused id and state their own place: which of its places is meant.
-- columns: run_id, chunker_version (of the index), chunk_id, is_as_now (the place that the table has now)
-- kind: table
-- variants: none, if no id is reused for other text
--
-- Texts as in table_places.
WITH places AS (
    SELECT
        spans_text,
        STRING_AGG(
            box_text(span_axis(span.kind, span.page), span_low(span), span_high(span), span_bottom(span), span_top(span)),
            ' '
            ORDER BY
                span_axis(span.kind, span.page), span_low(span), span_high(span), span_bottom(span), span_top(span)
        ) AS place_text
    FROM (
        SELECT spans_text, UNNEST(spans_in(spans_text)) AS span
        FROM (SELECT DISTINCT spans_text FROM told_claims)
    )
    WHERE is_place(span)
    GROUP BY spans_text
)

SELECT
    c.run_id,
    c.chunker_version,
    c.chunk_id,
    NOT MIN(stands_elsewhere(c.now_doc, n.place_text, c.doc_id, COALESCE(p.place_text, ''))) AS is_as_now
FROM told_claims AS c
LEFT JOIN places AS p ON p.spans_text = c.spans_text
LEFT JOIN table_places AS n ON n.spans_text = c.now_text
GROUP BY c.run_id, c.chunker_version, c.chunk_id, c.doc_id, c.spans_text
