-- hit_chunks: as hit_chunks.sql, if all runs, and therefore the chunks of all hits, have one chunker.
-- kind: table
SELECT chunk_id, (SELECT MIN(chunker_version) FROM runs) AS chunker_version
FROM (SELECT DISTINCT chunk_id FROM hits WHERE chunk_id IS NOT NULL) AS named
