-- told_places: hits that name a reused id and state their own place: which of its places is meant.
-- columns: run_id, chunker_version (of the index), chunk_id, is_as_now (where the table has it now)
-- kind: table
-- variants: none, where no id is used again for other text
SELECT
    r.run_id,
    n.chunker_version,
    c.chunk_id,
    NOT MIN(stands_elsewhere(n.doc_id, n.spans_text, c.doc_id, c.spans_text)) AS is_as_now
FROM hit_claims AS c
JOIN results AS r ON r.result_no = c.result_no
JOIN reused_chunks AS n
    ON  n.chunk_id = c.chunk_id
    AND n.chunker_version = COALESCE(c.chunker_version, n.chunker_version)
WHERE c.spans_text IS NOT NULL
GROUP BY r.run_id, n.chunker_version, c.chunk_id, c.doc_id, c.spans_text
