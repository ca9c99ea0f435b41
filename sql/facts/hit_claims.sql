-- hit_claims: one row a hit, with what the stored row itself says about where the hit stands. The rows are read a
-- second time for it: most scorings never ask.
-- columns: result_no, position, chunk_id, doc_id, path, chunker_version (null: it does not say), spans_text (null:
--          it does not say)
-- kind: table
SELECT
    r.result_no,
    h.position,
    h.hit.chunk_id                                        AS chunk_id,
    NULLIF(h.hit.doc_id, '')                              AS doc_id,
    COALESCE(h.hit.doc_path, h.hit.citation ->> '$.path') AS path,
    NULLIF(h.hit.chunker_version, '')                     AS chunker_version,
    hit_spans_text(h.hit)                                 AS spans_text
FROM (
    SELECT run_id, query_id, UNNEST(range(1, len(hits) + 1)) AS position, UNNEST(hits) AS hit
    FROM (
        SELECT
            CAST(run_id AS VARCHAR)   AS run_id,
            CAST(query_id AS VARCHAR) AS query_id,
            hits_in(result_json)      AS hits
        FROM stored_places
    )
) AS h
JOIN results AS r ON r.run_id = h.run_id AND r.query_id = h.query_id AND NOT r.failed
