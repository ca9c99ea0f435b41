-- unplaced_pool: is there a hit whose place is not in the tables?
-- columns: chunk_id
-- kind: view
SELECT h.chunk_id
FROM (
    SELECT DISTINCT h.chunk_id, COALESCE(h.chunker_version, u.chunker_version) AS chunker_version
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    JOIN runs AS u ON u.run_id = r.run_id
) AS h
LEFT JOIN pool_chunks AS k ON k.chunk_id = h.chunk_id AND k.chunker_version = h.chunker_version
WHERE k.chunk_id IS NULL
LIMIT 1
