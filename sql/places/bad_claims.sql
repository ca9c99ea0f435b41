-- bad_claims: what hits of rows that cannot be read state about their place, as hit_claims for the others. An archive
-- keeps it: such a hit may be the only one that has the place of an expected chunk.
-- columns: run_id, chunk_id, doc_id, path, chunker_version, spans_text, cited_text
-- kind: table
-- variants: none, if every row can be read
SELECT
    h.run_id,
    NULLIF(h.hit.chunk_id, '')                            AS chunk_id,
    NULLIF(h.hit.doc_id, '')                              AS doc_id,
    COALESCE(h.hit.doc_path, h.hit.citation ->> '$.path') AS path,
    NULLIF(h.hit.chunker_version, '')                     AS chunker_version,
    CASE WHEN n_usable(spans_in(CAST(h.hit.source_spans AS VARCHAR))) > 0
         THEN CAST(h.hit.source_spans AS VARCHAR) END     AS spans_text,
    CASE WHEN n_usable(spans_in(cited_span(h.hit.citation))) > 0
         THEN cited_span(h.hit.citation) END              AS cited_text
FROM (
    SELECT b.run_id, UNNEST(hits_in(s.result_json)) AS hit
    FROM bad_rows AS b
    JOIN stored_fields AS s
        ON  CAST(s.run_id AS VARCHAR) = b.run_id
        AND shown_text(CAST(s.query_id AS VARCHAR)) = b.query_id
) AS h
