-- sightings: what hits of any stored run state about the unplaced chunks.
-- columns: chunk_id, chunker_version (null: not known), doc_id, path, spans_text (null: not known),
--          is_cited (the place is that of a citation, which may cover only a part of the chunk)
-- kind: table
-- variants: none, if the tables have the place of every expected chunk
--
-- Kept hits count equally with stored ones: keeping them must not change the meaning of a label.
WITH seen AS (
    SELECT chunk_id, chunker_version, doc_id, path, spans_json, cited_json
    FROM history_hits

    UNION
    SELECT chunk_id, NULLIF(chunker_version, ''), doc_id, NULL, spans_text, NULL
    FROM kept_chunks
    WHERE seen_in = 'hits' AND chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
),

usable AS (
    SELECT spans_json
    FROM (SELECT spans_json FROM seen UNION SELECT cited_json FROM seen)
    WHERE n_usable(spans_in(spans_json)) > 0
)

SELECT DISTINCT
    h.chunk_id,
    h.chunker_version,
    h.doc_id,
    h.path,
    COALESCE(s.spans_json, c.spans_json)                  AS spans_text,
    s.spans_json IS NULL AND c.spans_json IS NOT NULL     AS is_cited
FROM seen AS h
LEFT JOIN usable AS s ON s.spans_json = h.spans_json
LEFT JOIN usable AS c ON c.spans_json = h.cited_json
