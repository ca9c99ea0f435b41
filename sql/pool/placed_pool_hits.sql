-- placed_pool_hits: for each query, the chunks that runs returned in the pooled ranks, each once, and by how many runs.
-- columns: query_id, chunk_id (null: not stated), chunker_version (null: not known), doc_id, path, spans_text
--          (null: not known), runs (a bit per run that returned it), best_rank, run_id (one of the runs)
-- kind: table
SELECT
    r.query_id,
    h.chunk_id,
    COALESCE(h.chunker_version, u.chunker_version) AS chunker_version,
    p.doc_id,
    MIN(p.path)               AS path,
    p.spans_text,
    bit_or(n.run_bit)         AS runs,
    MIN(h.rank)               AS best_rank,
    MAX(r.run_id)             AS run_id
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
JOIN pool_runs AS n ON n.run_id = r.run_id
JOIN runs AS u ON u.run_id = r.run_id
JOIN hit_places AS p ON p.result_no = h.result_no AND p.position = h.position
WHERE h.rank <= (SELECT depth FROM pool_settings)
  AND r.query_id IN (SELECT query_id FROM queries)
GROUP BY r.query_id, h.chunk_id, COALESCE(h.chunker_version, u.chunker_version), p.doc_id, p.spans_text
