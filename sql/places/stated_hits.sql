-- stated_hits: one row per hit, with what the stored row states about its place and text, unparsed. The rows are read a
-- second time for it, which most scorings do not need.
-- columns: result_no, position, chunk_id, doc_id, path, chunker_version (null: not stated), spans_json (its
--          source_spans), cited_json (its citation, as a list with one span; null: it has none), characters (of its text;
--          null: the text is missing or was cut short)
-- kind: table
SELECT
    r.result_no,
    h.position,
    NULLIF(h.hit.chunk_id, '')                            AS chunk_id,
    NULLIF(h.hit.doc_id, '')                              AS doc_id,
    COALESCE(h.hit.doc_path, h.hit.citation ->> '$.path') AS path,
    NULLIF(h.hit.chunker_version, '')                     AS chunker_version,
    CAST(h.hit.source_spans AS VARCHAR)                   AS spans_json,
    cited_span(h.hit.citation)                            AS cited_json,
    CASE WHEN NOT is_cut_text(h.hit.text) THEN length(h.hit.text) END AS characters
FROM (
    SELECT run_id, query_id, UNNEST(range(1, len(hits) + 1)) AS position, UNNEST(hits) AS hit
    FROM (
        SELECT
            CAST(run_id AS VARCHAR)               AS run_id,
            shown_text(CAST(query_id AS VARCHAR)) AS query_id,
            hits_in(result_json)                  AS hits
        FROM stored_places
    )
) AS h
JOIN results AS r ON r.run_id = h.run_id AND r.query_id = h.query_id
WHERE r.result_no NOT IN (SELECT result_no FROM bad_rows)
