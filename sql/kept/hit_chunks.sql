-- hit_chunks: the chunks that hits name, each once for each chunker version that named it.
-- columns: chunk_id, chunker_version (the run's; null: unknown)
-- kind: table
-- variants: alike, if the configurations of all runs name one chunker
SELECT DISTINCT h.chunk_id, u.chunker_version
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
JOIN runs AS u ON u.run_id = r.run_id
WHERE h.chunk_id IS NOT NULL
