-- hits: as hits.sql, if every row can be read and every rank is the position of its hit in the list.
-- kind: view
SELECT
    result_no,
    position,
    rank,
    rank                                       AS stored_rank,
    NULLIF(chunk_id, '')                       AS chunk_id,
    NULLIF(doc_id, '')                         AS doc_id,
    score,
    NULLIF(chunker_version, '')                AS chunker_version,
    CASE WHEN token_count >= 0 AND isfinite(token_count) THEN token_count END AS token_count
FROM parsed_hits
