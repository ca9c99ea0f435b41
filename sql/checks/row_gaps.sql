-- row_gaps: counts of what is missing from the rows. If nothing is missing, no row needs to be read again. One row.
-- columns: n_odd_runs (without any hits, or with empty answers only), n_unlinked_hits (that name no chunk or no document),
--          n_nameless_hits (that name neither)
-- kind: table
WITH odd_runs AS (
    SELECT run_id
    FROM results
    WHERE NOT failed
    GROUP BY run_id
    HAVING MAX(n_hits) = 0
        OR (
            MAX(CASE WHEN has_answer THEN 1 END) = 1
            AND MIN(CASE WHEN has_answer AND NOT is_empty THEN 0 ELSE 1 END) = 1
        )
)

SELECT
    (SELECT COUNT(*) FROM odd_runs)                                       AS n_odd_runs,
    COUNT(CASE WHEN chunk_id IS NULL OR doc_id IS NULL THEN 1 END)        AS n_unlinked_hits,
    COUNT(CASE WHEN chunk_id IS NULL AND doc_id IS NULL THEN 1 END)       AS n_nameless_hits
FROM hits
