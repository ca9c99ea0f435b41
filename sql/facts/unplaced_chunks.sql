-- unplaced_chunks: expected chunks of which the table `chunks`, as it is or as it was, does not know where they stood.
-- columns: chunk_id
-- kind: table
SELECT DISTINCT e.chunk_id
FROM expected_chunks AS e
LEFT JOIN placed_chunks AS p ON p.chunk_id = e.chunk_id
WHERE p.chunk_id IS NULL
