-- unplaced_chunks: expected chunks of which neither the table `chunks` nor the archive knows anything.
-- columns: chunk_id
-- kind: table
SELECT DISTINCT e.chunk_id
FROM expected_chunks AS e
LEFT JOIN known_places AS k ON k.chunk_id = e.chunk_id
WHERE k.chunk_id IS NULL
