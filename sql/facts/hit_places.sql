-- hit_places: the document and the position of each hit: what it says itself, else what is known of its chunk.
-- columns: result_no, position, doc_id (the path, where nothing knows an id for it), path (null: it does not say),
--          spans_text (null: nobody knows)
-- kind: table
WITH silent AS (
    SELECT DISTINCT chunk_id, chunker_version
    FROM hit_sources
    WHERE chunk_id IS NOT NULL AND (spans_text IS NULL OR (doc_id IS NULL AND path IS NULL))
),

known AS (
    SELECT
        s.chunk_id,
        s.chunker_version,
        k.doc_id,
        COALESCE(usable_spans(k.spans_text), usable_spans(k.archived_text)) AS spans_text
    FROM silent AS s
    JOIN indexed_places AS k
        ON  k.chunk_id = s.chunk_id
        AND k.chunker_version = COALESCE(s.chunker_version, k.chunker_version)
    QUALIFY ROW_NUMBER() OVER (PARTITION BY s.chunk_id, s.chunker_version ORDER BY k.age) = 1
)

SELECT
    h.result_no,
    h.position,
    COALESCE(h.doc_id, d.doc_id, k.doc_id, h.path) AS doc_id,
    h.path,
    COALESCE(h.spans_text, k.spans_text)           AS spans_text
FROM hit_sources AS h
LEFT JOIN doc_paths AS d ON d.path = h.path
LEFT JOIN known AS k
    ON  k.chunk_id = h.chunk_id
    AND k.chunker_version IS NOT DISTINCT FROM h.chunker_version
