-- unplaced_chunks: expected chunks whose place is unknown to the table `chunks`, now and in the past.
-- columns: chunk_id
-- kind: table
SELECT DISTINCT e.chunk_id
FROM expected_chunks AS e
LEFT JOIN label_places AS p ON p.chunk_id = e.chunk_id AND p.spans_text IS NOT NULL
WHERE p.chunk_id IS NULL
