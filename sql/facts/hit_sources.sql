-- hit_sources: one row a hit, and what is said about where it stands; a hit that names no chunker is of its run's.
-- columns: result_no, position, chunk_id, doc_id, path, chunker_version, spans_text (null: it does not say)
-- kind: view
SELECT
    c.result_no,
    c.position,
    c.chunk_id,
    c.doc_id,
    c.path,
    COALESCE(c.chunker_version, u.chunker_version) AS chunker_version,
    c.spans_text
FROM hit_claims AS c
JOIN results AS r ON r.result_no = c.result_no
JOIN runs AS u ON u.run_id = r.run_id
