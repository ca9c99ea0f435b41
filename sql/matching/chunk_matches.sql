-- chunk_matches: the hits that count as an expected chunk, each chunk once, at its best rank.
-- columns: result_no, position, rank
-- kind: view
-- variants: ids, if chunk ids decide for every run
SELECT c.result_no, c.position, c.rank
FROM correct_hits AS c
JOIN results AS r ON r.result_no = c.result_no
JOIN queries AS q ON q.query_id = r.query_id
-- A query that expects only documents has no chunk to match.
WHERE q.n_expected_chunks + q.n_expected_spans > 0
