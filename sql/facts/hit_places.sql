-- hit_places: the document and the position of each hit: what it says itself, else what is known of its chunk.
-- columns: result_no, position, doc_id, spans_text (null: nobody knows)
-- kind: table
WITH any_version AS (
    SELECT
        chunk_id,
        ARG_MIN(doc_id, COALESCE(first_seen, '9') || chunker_version)     AS doc_id,
        ARG_MIN(spans_text, COALESCE(first_seen, '9') || chunker_version) AS spans_text
    FROM known_places
    GROUP BY chunk_id
)

SELECT
    h.result_no,
    h.position,
    COALESCE(h.doc_id, d.doc_id, k.doc_id, a.doc_id)        AS doc_id,
    COALESCE(h.spans_text, k.spans_text, a.spans_text)      AS spans_text
FROM hit_sources AS h
LEFT JOIN doc_paths AS d ON d.path = h.path
LEFT JOIN known_places AS k ON k.chunk_id = h.chunk_id AND k.chunker_version = h.chunker_version
LEFT JOIN any_version AS a ON a.chunk_id = h.chunk_id AND h.chunker_version IS NULL
