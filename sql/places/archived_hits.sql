-- archived_hits: history_hits, from what an archive holds of all of its runs, for an engine that reads it there. Spans that
-- say nothing are null.
-- columns: as in history_hits
-- kind: table
SELECT
    c.chunk_id,
    COALESCE(c.chunker_version, v.chunker_version) AS chunker_version,
    c.doc_id,
    c.path,
    c.spans_text AS spans_json,
    c.cited_text AS cited_json
FROM archived_claims AS c
JOIN archived_results AS r ON r.result_no = c.result_no
JOIN archived_versions AS v ON v.run_id = r.run_id
JOIN unplaced_chunks AS u ON u.chunk_id = c.chunk_id

UNION
SELECT b.chunk_id, COALESCE(b.chunker_version, v.chunker_version), b.doc_id, b.path, b.spans_text, b.cited_text
FROM archived_bad_claims AS b
JOIN archived_versions AS v ON v.run_id = b.run_id
JOIN unplaced_chunks AS u ON u.chunk_id = b.chunk_id
