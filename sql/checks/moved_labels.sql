-- moved_labels: runs of the current index that are matched by id, and the expected ids that refer to other text in it than
-- when they were first seen.
-- columns: run_id, chunker_version, n_chunks, chunk_id (the first)
-- kind: view
SELECT u.run_id, u.chunker_version, COUNT(*) AS n_chunks, MIN(e.chunk_id) AS chunk_id
FROM run_matching AS u
JOIN run_chunkers AS g ON g.run_id = u.run_id
JOIN (SELECT DISTINCT chunk_id, chunker_version FROM reused_chunks) AS n ON n.chunker_version = u.chunker_version
JOIN (SELECT DISTINCT chunk_id FROM expected_chunks) AS e ON e.chunk_id = n.chunk_id
WHERE u.matching = 'exact' AND u.is_current AND NOT g.is_unclear
GROUP BY u.run_id, u.chunker_version
