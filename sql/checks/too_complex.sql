-- too_complex: hits and expected places with too many overlapping regions to be matched by spans.
-- columns: run_id (null: it is an expected place), query_id, position (of the first such hit)
-- kind: view
SELECT r.run_id, r.query_id, MIN(CAST(c.minor AS BIGINT)) AS position
FROM complex_sets AS c
JOIN results AS r ON c.major = CAST(r.result_no AS STRING)
WHERE c.owner = 'hit'
GROUP BY r.run_id, r.query_id

UNION ALL
SELECT DISTINCT NULL, major, NULL
FROM complex_sets
WHERE owner = 'place'
