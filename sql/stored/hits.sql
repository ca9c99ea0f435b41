-- hits: one row per retrieved chunk, as the stored row says it. A failed query keeps what it retrieved.
-- columns: result_no, position, rank (the place that counts), stored_rank (as stored; the place in the list where none
--          is), chunk_id, doc_id (null: the hit does not say; hit_docs works it out), score, chunker_version (null: the
--          hit does not say), token_count (null: the hit does not say)
-- kind: view
-- shown: yes
--
-- The rank is the stored rank, gaps and all. Only where hits of one ranking have the same rank, each takes a place of its
-- own: in the order of their ranks, then of the list, its stored rank or the next place that is free (tied_ranks).
SELECT
    result_no,
    position,
    rank,
    stored_rank,
    NULLIF(chunk_id, '')                       AS chunk_id,
    NULLIF(doc_id, '')                         AS doc_id,
    score,
    NULLIF(chunker_version, '')                AS chunker_version,
    CASE WHEN token_count >= 0 AND isfinite(token_count) THEN token_count END AS token_count
FROM (
    SELECT *, rank AS stored_rank
    FROM parsed_hits
    WHERE result_no NOT IN (SELECT result_no FROM bad_rows UNION ALL SELECT result_no FROM tied_ranks)

    UNION ALL
    SELECT p.* REPLACE (t.rank AS rank), p.rank AS stored_rank
    FROM tied_ranks AS t
    JOIN parsed_hits AS p ON p.result_no = t.result_no AND p.position = t.position
)
