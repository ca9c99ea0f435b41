-- sighted_chunks: unplaced chunks that a hit of any stored run holds, with what such a hit says about them.
-- columns: chunk_id, doc_id, path, spans_text
-- kind: table
SELECT
    chunk_id,
    ARG_MIN(doc_id, sorted)     AS doc_id,
    ARG_MIN(path, sorted)       AS path,
    ARG_MIN(spans_text, sorted) AS spans_text
FROM (
    SELECT
        hit.chunk_id                                      AS chunk_id,
        NULLIF(hit.doc_id, '')                            AS doc_id,
        COALESCE(hit.doc_path, hit.citation ->> '$.path') AS path,
        hit_spans_text(hit)                               AS spans_text,
        -- Any of them will do, as long as it is always the same, and one that says something.
        CASE WHEN hit_spans_text(hit) IS NULL THEN '1' ELSE '0' END
            || COALESCE(NULLIF(hit.chunker_version, ''), chunker_version) || CAST(hit AS VARCHAR) AS sorted
    FROM (
        SELECT CAST(chunker_version AS VARCHAR) AS chunker_version, UNNEST(hits_in(result_json)) AS hit
        FROM stored_history
    )
    WHERE hit.chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
)
GROUP BY chunk_id
