-- expected_places: where the answer to a golden query stands: its expected_spans, else its expected chunks as the
-- tables, the archive or any stored hit know them.
-- columns: query_id, place (a chunk's id, or which of the spans), doc_id, spans_text (null: nobody knows)
-- kind: table
WITH written AS (
    SELECT query_id, 'span ' || number AS place, COALESCE(span ->> '$.doc_id', d.doc_id) AS doc_id, span
    FROM (
        SELECT
            e.id                                           AS query_id,
            UNNEST(range(1, len(e.expected_spans) + 1))    AS number,
            UNNEST(e.expected_spans)                       AS span
        FROM golden_entries
    )
    LEFT JOIN doc_paths AS d ON d.path = span ->> '$.path'
),

candidates AS (
    SELECT k.chunk_id, k.chunker_version, k.doc_id, k.spans_text, COALESCE(k.first_seen, '8') AS first_seen
    FROM known_places AS k
    WHERE k.chunk_id IN (SELECT chunk_id FROM expected_chunks)

    UNION ALL
    SELECT chunk_id, chunker_version, doc_id, spans_text, '9'
    FROM sighted_chunks
),

chosen AS (
    SELECT c.chunk_id, c.doc_id, c.spans_text
    FROM candidates AS c
    LEFT JOIN label_version AS v ON v.chunker_version = c.chunker_version
    QUALIFY ROW_NUMBER() OVER (
        PARTITION BY c.chunk_id
        ORDER BY v.chunker_version IS NULL, c.first_seen, c.chunker_version
    ) = 1
)

SELECT query_id, place, doc_id, '[' || CAST(span AS VARCHAR) || ']' AS spans_text
FROM written

UNION ALL
SELECT e.query_id, e.chunk_id, c.doc_id, c.spans_text
FROM expected_chunks AS e
LEFT JOIN chosen AS c ON c.chunk_id = e.chunk_id
WHERE e.query_id NOT IN (SELECT query_id FROM written)
