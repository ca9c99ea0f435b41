-- run_ledger: for each run, the number of rows, and how many of them are irregular.
-- columns: run_id, n_rows, n_unknown (not in the golden file), n_failed, n_unreadable, n_repeated_hits,
--          n_malformed_citations
-- kind: table
WITH repeats AS (
    SELECT result_no, SUM(n_repeats) AS n
    FROM repeated_hits
    GROUP BY result_no
),

malformed AS (
    SELECT result_no, COUNT(*) AS n
    FROM cited_places
    WHERE is_malformed
    GROUP BY result_no
)

SELECT
    u.run_id,
    COUNT(r.result_no)                                          AS n_rows,
    COUNT(CASE WHEN q.query_id IS NULL THEN r.result_no END)    AS n_unknown,
    COUNT(CASE WHEN r.failed THEN 1 END)                        AS n_failed,
    COUNT(b.result_no)                                          AS n_unreadable,
    COALESCE(SUM(p.n), 0)                                       AS n_repeated_hits,
    COALESCE(SUM(m.n), 0)                                       AS n_malformed_citations
FROM runs AS u
LEFT JOIN results AS r ON r.run_id = u.run_id
LEFT JOIN queries AS q ON q.query_id = r.query_id
LEFT JOIN bad_rows AS b ON b.result_no = r.result_no
LEFT JOIN repeats AS p ON p.result_no = r.result_no
LEFT JOIN malformed AS m ON m.result_no = r.result_no
GROUP BY u.run_id
