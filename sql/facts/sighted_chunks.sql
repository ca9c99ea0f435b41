-- sighted_chunks: unplaced chunks that a hit of any stored run holds, with what such a hit says about them.
-- columns: chunk_id, doc_id, path, spans_text
-- kind: table
--
-- Hits that were archived count beside those that are stored, not before them: archiving must not change what a
-- label means.
WITH sightings AS (
    SELECT
        hit.chunk_id                                                        AS chunk_id,
        COALESCE(NULLIF(hit.chunker_version, ''), chunker_version)          AS chunker_version,
        NULLIF(hit.doc_id, '')                                              AS doc_id,
        COALESCE(hit.doc_path, hit.citation ->> '$.path')                   AS path,
        hit_spans_text(hit)                                                 AS spans_text
    FROM (
        SELECT CAST(chunker_version AS VARCHAR) AS chunker_version, UNNEST(hits_in(result_json)) AS hit
        FROM stored_history
    )
    WHERE hit.chunk_id IN (SELECT chunk_id FROM unplaced_chunks)

    UNION
    SELECT chunk_id, chunker_version, doc_id, NULL, usable_spans(spans_text)
    FROM archived_chunks
    WHERE seen_in = 'hits' AND chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
)

SELECT s.chunk_id, COALESCE(s.doc_id, d.doc_id) AS doc_id, s.path, s.spans_text
FROM sightings AS s
LEFT JOIN doc_paths AS d ON d.path = s.path
-- Any of them will do, as long as it is always the same, and one that says something.
QUALIFY ROW_NUMBER() OVER (
    PARTITION BY s.chunk_id
    ORDER BY
        s.spans_text IS NULL,
        COALESCE(s.doc_id, d.doc_id, s.path) IS NULL,
        s.chunker_version,
        s.spans_text,
        COALESCE(s.doc_id, d.doc_id) NULLS LAST,
        s.path NULLS LAST
) = 1
