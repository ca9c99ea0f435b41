-- hits: one row a retrieved chunk. A failed query has none.
-- columns: result_no, position, rank (as stored; the place in the list where none is), chunk_id, doc_id, doc_path, score
-- kind: table
SELECT
    h.result_no,
    h.position,
    COALESCE(json_rank(h.rank), h.position) AS rank,
    json_text(h.chunk_id)                   AS chunk_id,
    json_text(h.doc_id)                     AS doc_id,
    json_text(h.doc_path)                   AS doc_path,
    json_number(h.score)                    AS score
FROM parsed_hits AS h
WHERE h.result_no NOT IN (SELECT result_no FROM results WHERE failed)
