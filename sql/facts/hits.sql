-- hits: one row per retrieved chunk, as the stored row says it. A failed query keeps what it retrieved.
-- columns: result_no, position, rank (as stored; the place in the list where none is), chunk_id, doc_id (null: the hit
--          does not say; hit_docs works it out), score, chunker_version (null: the hit does not say),
--          token_count (null: the hit does not say)
-- kind: view
SELECT
    result_no,
    position,
    rank,
    NULLIF(chunk_id, '')                       AS chunk_id,
    NULLIF(doc_id, '')                         AS doc_id,
    score,
    NULLIF(chunker_version, '')                AS chunker_version,
    CASE WHEN token_count >= 0 AND isfinite(token_count) THEN token_count END AS token_count
FROM parsed_hits
WHERE result_no NOT IN (SELECT result_no FROM bad_rows)
