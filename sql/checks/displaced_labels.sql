-- displaced_labels: for each run, the expected chunks that its hits name by id, but in another document than any that the
-- tables have for them, if the tables contain both documents. As displaced_hits, without reading the rows again.
-- columns: run_id, n_labels, query_id (the first), chunk_id (of that query)
-- kind: view
SELECT
    run_id,
    COUNT(DISTINCT chunk_id)      AS n_labels,
    MIN(query_id)                 AS query_id,
    MIN_BY(chunk_id, query_id)    AS chunk_id
FROM (
    SELECT r.run_id, r.query_id, i.place AS chunk_id, i.result_no, i.position
    FROM id_matches AS i
    JOIN results AS r ON r.result_no = i.result_no
    JOIN hits AS h ON h.result_no = i.result_no AND h.position = i.position
    JOIN known_chunks AS k ON k.chunk_id = i.place
    WHERE k.doc_id IS NOT NULL AND h.doc_id IN (SELECT doc_id FROM known_chunks)
    GROUP BY r.run_id, r.query_id, i.place, i.result_no, i.position, h.doc_id
    HAVING COUNT(CASE WHEN k.doc_id = h.doc_id THEN 1 END) = 0
) AS displaced
GROUP BY run_id
