-- nameless_hits: for each run, the number of hits that do not name a chunk.
-- columns: run_id, n_hits, n_nameless, query_id (the first; a run in which every hit names a chunk has no row)
-- kind: table
-- variants: none, if every hit names its chunk
SELECT
    r.run_id,
    COUNT(*) AS n_hits,
    COUNT(CASE WHEN h.chunk_id IS NULL THEN 1 END) AS n_nameless,
    MIN(CASE WHEN h.chunk_id IS NULL THEN r.query_id END) AS query_id
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
GROUP BY r.run_id
HAVING COUNT(CASE WHEN h.chunk_id IS NULL THEN 1 END) > 0
