-- sightings: what hits of any stored run say about the unplaced chunks.
-- columns: chunk_id, chunker_version (null: not known), doc_id, path, spans_text (null: not known),
--          is_cited (the place is that of a citation, which may be a part of the chunk)
-- kind: table
-- variants: none, where the tables know the place of every expected chunk
--
-- Kept hits count along with those that are stored, not before them: keeping them must not change what a
-- label means.
WITH seen AS (
    SELECT
        hit.chunk_id                                               AS chunk_id,
        COALESCE(NULLIF(hit.chunker_version, ''), chunker_version) AS chunker_version,
        NULLIF(hit.doc_id, '')                                     AS doc_id,
        COALESCE(hit.doc_path, hit.citation ->> '$.path')          AS path,
        usable_spans(hit.source_spans)                             AS spans_text,
        citation_text(hit.citation)                                AS cited_text
    FROM (
        SELECT NULLIF(CAST(chunker_version AS VARCHAR), '') AS chunker_version, UNNEST(hits_in(result_json)) AS hit
        FROM stored_history
    )
    WHERE hit.chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
)

SELECT
    chunk_id,
    chunker_version,
    doc_id,
    path,
    COALESCE(spans_text, cited_text)                   AS spans_text,
    spans_text IS NULL AND cited_text IS NOT NULL      AS is_cited
FROM seen

UNION
SELECT chunk_id, NULLIF(chunker_version, ''), doc_id, NULL, usable_spans(spans_text), false
FROM kept_chunks
WHERE seen_in = 'hits' AND chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
