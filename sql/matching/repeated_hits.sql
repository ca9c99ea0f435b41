-- repeated_hits: chunks that a ranking contains more than once.
-- columns: result_no, chunk_id, n_repeats (appearances beyond the first)
-- kind: view
SELECT result_no, chunk_id, COUNT(*) - 1 AS n_repeats
FROM hits
WHERE chunk_id IS NOT NULL
GROUP BY result_no, chunk_id
HAVING COUNT(*) > 1
