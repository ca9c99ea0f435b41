-- told_places: for hits that name a reused id and state their own place: which of its places is meant.
-- columns: run_id, chunker_version (of the index), chunk_id, is_as_now (the place that the table has now)
-- kind: table
-- variants: none, where no id is reused for other text
WITH claims AS (
    SELECT DISTINCT
        r.run_id,
        n.chunker_version,
        c.chunk_id,
        c.doc_id,
        c.spans_text,
        n.doc_id     AS now_doc,
        n.spans_text AS now_text
    FROM hit_claims AS c
    JOIN results AS r ON r.result_no = c.result_no
    JOIN reused_chunks AS n
        ON  n.chunk_id = c.chunk_id
        AND n.chunker_version = COALESCE(c.chunker_version, n.chunker_version)
    WHERE c.spans_text IS NOT NULL
),

-- As in table_places.
places AS (
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
        FROM (SELECT DISTINCT spans_text FROM claims)
    )
    WHERE is_place(span)
    GROUP BY spans_text
)

SELECT
    c.run_id,
    c.chunker_version,
    c.chunk_id,
    NOT MIN(stands_elsewhere(c.now_doc, n.place_text, c.doc_id, COALESCE(p.place_text, ''))) AS is_as_now
FROM claims AS c
LEFT JOIN places AS p ON p.spans_text = c.spans_text
LEFT JOIN table_places AS n ON n.spans_text = c.now_text
GROUP BY c.run_id, c.chunker_version, c.chunk_id, c.doc_id, c.spans_text
