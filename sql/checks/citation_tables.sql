-- citation_tables: is there anything to resolve citations against, and anything to resolve? One row.
-- columns: n_chunks, n_documents (that are known), n_answers (grounded ones, in a knowledge base's own runs)
-- kind: view
SELECT
    (SELECT COUNT(*) FROM known_chunks)      AS n_chunks,
    (SELECT COUNT(*) FROM documents)         AS n_documents,
    COUNT(CASE WHEN r.grounded THEN 1 END)   AS n_answers
FROM results AS r
JOIN runs AS u ON u.run_id = r.run_id
WHERE u.system IS NULL
