-- told_claims: what hits that name a reused id say about their place, each different statement once.
-- columns: run_id, chunker_version (of the index), chunk_id, doc_id, spans_text (as the hit states them), now_doc, now_text
--          (where the table has the chunk now)
-- kind: table
SELECT DISTINCT
    r.run_id,
    n.chunker_version,
    c.chunk_id,
    c.doc_id,
    c.spans_text,
    n.doc_id     AS now_doc,
    n.spans_text AS now_text
FROM hit_claims AS c
JOIN results AS r ON r.result_no = c.result_no
JOIN reused_chunks AS n
    ON  n.chunk_id = c.chunk_id
    AND n.chunker_version = COALESCE(c.chunker_version, n.chunker_version)
WHERE c.spans_text IS NOT NULL
