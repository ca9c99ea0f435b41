-- id_matches: the hits that are an expected chunk. A chunk that is returned more than once counts once, at its best rank.
-- columns: result_no, position, rank, place (the chunk's id), doc_id (of the hit; null: not stated)
-- kind: table
SELECT
    h.result_no,
    -- No two hits of a ranking have the same rank.
    MIN_BY(h.position, h.rank)                         AS position,
    MIN(h.rank)                                        AS rank,
    h.chunk_id                                         AS place,
    NULLIF(MIN_BY(COALESCE(h.doc_id, ''), h.rank), '') AS doc_id
FROM wanted_chunks AS w
JOIN hits AS h ON h.result_no = w.result_no AND h.chunk_id = w.chunk_id
GROUP BY h.result_no, h.chunk_id
