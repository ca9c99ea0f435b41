-- label_version: the chunker version that the labels were made with: the one that knows most expected chunks.
-- Where several know as many (a chunker that uses the same ids again), the one that was seen first.
-- columns: chunker_version
-- kind: table
SELECT k.chunker_version
FROM (SELECT DISTINCT chunk_id FROM expected_chunks) AS e
JOIN known_places AS k ON k.chunk_id = e.chunk_id
GROUP BY k.chunker_version
ORDER BY COUNT(*) DESC, MIN(COALESCE(k.first_seen, '9')), k.chunker_version
LIMIT 1
