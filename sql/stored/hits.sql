-- hits: one row per retrieved chunk, as stored. A failed query keeps its hits.
-- columns: result_no, position, rank (the rank that counts), stored_rank (as stored; the position in the list if there is
--          none), chunk_id, doc_id (null: not stated; hit_docs resolves it), score, chunker_version (null: not stated),
--          token_count (null: not stated)
-- kind: view
-- shown: yes
-- variants: plain, if every row can be read and every rank is the position of its hit in the list
--
-- The rank is the stored rank, including gaps. Only if hits of one ranking have equal ranks, they are ordered by rank, then
-- by their order in the list, and each takes its stored rank or the next free one (tied_ranks).
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
