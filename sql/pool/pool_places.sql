-- pool_places: the places that labels name, as far as they are known from the golden file and the tables: no row is read
-- for it.
-- columns: query_id, place, doc_id, is_span_label, axis, low, high
-- kind: table
WITH written AS (
    SELECT
        e.id                                        AS query_id,
        UNNEST(range(1, len(e.expected_spans) + 1)) AS number,
        UNNEST(e.expected_spans)                    AS span
    FROM golden_entries
),

named AS (
    SELECT
        w.query_id,
        'span ' || w.number                                            AS place,
        COALESCE(w.span ->> '$.doc_id', d.doc_id, w.span ->> '$.path') AS doc_id,
        '[' || CAST(w.span AS VARCHAR) || ']'                          AS spans_text,
        true                                                           AS is_span_label
    FROM written AS w
    LEFT JOIN doc_paths AS d ON d.path = w.span ->> '$.path'

    UNION ALL
    SELECT e.query_id, e.chunk_id, l.doc_id, l.spans_text, false
    FROM expected_chunks AS e
    JOIN label_places AS l ON l.chunk_id = e.chunk_id
)

SELECT
    query_id,
    place,
    doc_id,
    is_span_label,
    span_axis(span.kind, span.page) AS axis,
    span_low(span)                  AS low,
    span_high(span)                 AS high
FROM (SELECT query_id, place, doc_id, is_span_label, UNNEST(spans_in(spans_text)) AS span FROM named)
WHERE is_place(span) AND span.kind <> 'region'
