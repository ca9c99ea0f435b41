-- returned_pool_hits: for each query the chunks that runs returned in the ranks to be pooled, each once, by id alone.
-- columns: query_no, chunk_id, chunker_version, runs (a bit per run that returned it), best_rank, run_no (the latest of these runs)
-- kind: table
SELECT
    r.query_no,
    h.chunk_id,
    COALESCE(h.chunker_version, r.chunker_version) AS chunker_version,
    bit_or(r.run_bit)         AS runs,
    MIN(h.rank)               AS best_rank,
    MAX(r.run_no)             AS run_no
FROM hits AS h
JOIN pool_results AS r ON r.result_no = h.result_no
WHERE h.rank <= (SELECT depth FROM pool_settings)
GROUP BY r.query_no, h.chunk_id, COALESCE(h.chunker_version, r.chunker_version)
