-- label_ranks: as label_ranks.sql, if chunk ids decide everywhere.
-- kind: table
SELECT r.result_no, g.chunk_id AS place, g.grade, g.is_relevant, MIN(h.rank) AS rank, true AS is_judgement
FROM results AS r
JOIN graded_labels AS g ON g.query_id = r.query_id
LEFT JOIN hits AS h ON h.result_no = r.result_no AND h.chunk_id = g.chunk_id
GROUP BY r.result_no, g.chunk_id, g.grade, g.is_relevant
