-- placed_pool_hits: for each query the chunks that runs returned in the ranks to be pooled, each once, and by how many runs.
-- columns: query_id, chunk_id (null: the hits do not say), chunker_version (null: not known), doc_id, path, spans_text
--          (null: not known), runs (a bit per run that returned it), best_rank, run_id (the latest of these runs)
-- kind: table
WITH returned AS (
    SELECT
        r.query_no,
        h.chunk_id,
        COALESCE(h.chunker_version, r.chunker_version) AS chunker_version,
        p.doc_id,
        MIN(p.path)               AS path,
        p.spans_text,
        bit_or(r.run_bit)         AS runs,
        MIN(h.rank)               AS best_rank,
        MAX(r.run_no)             AS run_no
    FROM hits AS h
    JOIN pool_results AS r ON r.result_no = h.result_no
    JOIN hit_places AS p ON p.result_no = h.result_no AND p.position = h.position
    WHERE h.rank <= (SELECT depth FROM pool_settings)
    GROUP BY r.query_no, h.chunk_id, COALESCE(h.chunker_version, r.chunker_version), p.doc_id, p.spans_text
)

SELECT q.query_id, t.chunk_id, t.chunker_version, t.doc_id, t.path, t.spans_text, t.runs, t.best_rank, n.run_id
FROM returned AS t
JOIN pool_query_numbers AS q ON q.query_no = t.query_no
JOIN pool_runs AS n ON n.run_no = t.run_no
