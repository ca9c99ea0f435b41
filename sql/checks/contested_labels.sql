-- contested_labels: runs of a chunker that is in no table, whose hits name expected chunks by id but have other text than
-- the tables have for that id, under another chunker. The tables decide what the labels mean, and may be wrong.
-- columns: run_id, chunker_version, label_version, n_chunks, query_id (the first)
-- kind: view
SELECT
    u.run_id,
    u.chunker_version,
    MIN(t.chunker_version)  AS label_version,
    COUNT(DISTINCT i.place) AS n_chunks,
    MIN(r.query_id)         AS query_id
FROM run_matching AS u
JOIN results AS r ON r.run_id = u.run_id
JOIN id_matches AS i ON i.result_no = r.result_no
JOIN matching AS m ON m.result_no = r.result_no
JOIN label_places AS t ON t.chunk_id = i.place
LEFT JOIN correct_hits AS c ON c.result_no = i.result_no AND c.position = i.position
WHERE u.matching = 'span'
  AND t.chunker_version <> u.chunker_version
  AND (c.result_no IS NULL OR m.matching = 'doc')
  AND u.chunker_version NOT IN (SELECT chunker_version FROM indexed_places)
GROUP BY u.run_id, u.chunker_version
