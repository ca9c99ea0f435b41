-- unplaced_pool: is there a hit in the ranks to be pooled whose place the tables do not know?
-- columns: chunk_id
-- kind: view
SELECT h.chunk_id
FROM returned_pool_hits AS h
LEFT JOIN pool_chunks AS k ON k.chunk_id = h.chunk_id AND k.chunker_version = h.chunker_version
WHERE k.chunk_id IS NULL
LIMIT 1
