-- sighted_chunks: unplaced chunks that a hit of any stored run holds, with what that hit says about them.
-- columns: chunk_id, chunker_version, doc_id, spans_text
-- kind: table
SELECT
    chunk_id,
    chunker_version,
    MIN(doc_id)     AS doc_id,
    MIN(spans_text) AS spans_text
FROM (
    SELECT
        hit.chunk_id                                               AS chunk_id,
        COALESCE(NULLIF(hit.chunker_version, ''), chunker_version) AS chunker_version,
        hit.doc_id                                                 AS doc_id,
        hit_spans_text(hit)                                        AS spans_text
    FROM (
        SELECT CAST(chunker_version AS VARCHAR) AS chunker_version, UNNEST(hits_in(result_json)) AS hit
        FROM stored_history
    )
)
WHERE chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
GROUP BY chunk_id, chunker_version
