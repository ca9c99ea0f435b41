-- sampled_rows: a few stored rows of each run to inspect: some that look unusual, and one that does not.
-- columns: run_id, query_id
-- kind: table
SELECT run_id, UNNEST(CASE WHEN kind = 'any' THEN MIN(query_id, 1) ELSE MIN(query_id, 5) END) AS query_id
FROM (
    SELECT
        r.run_id,
        r.query_id,
        CASE
            WHEN r.n_hits = 0                  THEN 'no hits'
            WHEN i.result_no IS NOT NULL       THEN 'hits without ids'
            WHEN r.has_answer AND r.is_empty THEN 'empty answer'
            ELSE                                    'any'
        END AS kind
    FROM results AS r
    LEFT JOIN (
        SELECT DISTINCT result_no
        FROM hits
        WHERE chunk_id IS NULL OR doc_id IS NULL
    ) AS i ON i.result_no = r.result_no
    WHERE NOT r.failed
)
GROUP BY run_id, kind
