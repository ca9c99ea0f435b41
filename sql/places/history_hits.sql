-- history_hits: what hits of any stored run state about the unplaced chunks, as it is written there.
-- columns: chunk_id, chunker_version (the hit's, else its run's; null: not known), doc_id, path, spans_json (its
--          source_spans), cited_json (its citation, as a list of one span)
-- kind: view
SELECT
    hit.chunk_id                                               AS chunk_id,
    COALESCE(NULLIF(hit.chunker_version, ''), chunker_version) AS chunker_version,
    NULLIF(hit.doc_id, '')                                     AS doc_id,
    COALESCE(hit.doc_path, hit.citation ->> '$.path')          AS path,
    CAST(hit.source_spans AS VARCHAR)                          AS spans_json,
    cited_span(hit.citation)                                   AS cited_json
FROM (
    SELECT NULLIF(CAST(chunker_version AS VARCHAR), '') AS chunker_version, UNNEST(hits_in(result_json)) AS hit
    FROM stored_history
)
WHERE hit.chunk_id IN (SELECT chunk_id FROM unplaced_chunks)
