-- expected_places: where the answer to a golden query is: its expected_spans, otherwise the places of its expected chunks
-- in the tables, the kept spans or any stored hit.
-- columns: query_id, place (a chunk's id, or which of the spans), doc_id (the path, if no id is known for it),
--          spans_text (null: not known), is_span_label (it is one of the expected_spans, not a chunk)
-- kind: table
-- variants: none, if chunk ids decide for every run
WITH written AS (
    SELECT query_id, 'span ' || number AS place, COALESCE(span ->> '$.doc_id', d.doc_id, span ->> '$.path') AS doc_id, span
    FROM (
        SELECT
            e.id                                           AS query_id,
            UNNEST(range(1, len(e.expected_spans) + 1))    AS number,
            UNNEST(e.expected_spans)                       AS span
        FROM golden_entries
    )
    LEFT JOIN doc_paths AS d ON d.path = span ->> '$.path'
),

chosen AS (
    SELECT chunk_id, doc_id, spans_text
    FROM label_places
    WHERE spans_text IS NOT NULL

    UNION ALL
    SELECT
        u.chunk_id,
        COALESCE(p.doc_id, s.doc_id, s.path) AS doc_id,
        -- A position in an unknown document is not a place.
        CASE WHEN COALESCE(p.doc_id, s.doc_id, s.path) IS NOT NULL THEN s.spans_text END AS spans_text
    FROM unplaced_chunks AS u
    LEFT JOIN label_places AS p ON p.chunk_id = u.chunk_id
    LEFT JOIN sighted_chunks AS s ON s.chunk_id = u.chunk_id
)

SELECT query_id, place, doc_id, '[' || CAST(span AS VARCHAR) || ']' AS spans_text, true AS is_span_label
FROM written

UNION ALL
SELECT e.query_id, e.chunk_id, c.doc_id, c.spans_text, false
FROM expected_chunks AS e
LEFT JOIN chosen AS c ON c.chunk_id = e.chunk_id
WHERE e.query_id NOT IN (SELECT query_id FROM written)
