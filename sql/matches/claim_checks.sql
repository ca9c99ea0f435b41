-- claim_checks: what the metrics of grounded question answering ask of a row of an imported trace.
-- columns: result_no, n_claims_found, n_cited, n_cited_unseen (not among the hits), n_cited_gold,
--          gold_complete_rank (by which all expected chunks were found)
-- kind: table
WITH claimed AS (
    SELECT r.result_no, COUNT(*) AS n
    FROM results AS r
    JOIN claim_rules AS c ON c.query_id = r.query_id
    JOIN answers AS a ON a.result_no = r.result_no
    WHERE CONTAINS(LOWER(a.answer), c.needle)
    GROUP BY r.result_no
),

cited AS (
    SELECT DISTINCT result_no, chunk_id FROM citations WHERE chunk_id IS NOT NULL
),

seen AS (
    SELECT DISTINCT result_no, chunk_id FROM hits
),

checked AS (
    SELECT
        c.result_no,
        COUNT(*)                                          AS n_cited,
        COUNT(CASE WHEN s.chunk_id IS NULL THEN 1 END)    AS n_unseen,
        COUNT(e.chunk_id)                                 AS n_gold
    FROM cited AS c
    JOIN results AS r ON r.result_no = c.result_no
    LEFT JOIN seen AS s ON s.result_no = c.result_no AND s.chunk_id = c.chunk_id
    LEFT JOIN expected_chunks AS e ON e.query_id = r.query_id AND e.chunk_id = c.chunk_id
    GROUP BY c.result_no
),

complete AS (
    SELECT i.result_no, MAX(i.rank) AS rank
    FROM id_matches AS i
    JOIN results AS r ON r.result_no = i.result_no
    JOIN queries AS q ON q.query_id = r.query_id
    GROUP BY i.result_no, q.n_expected_chunks
    HAVING COUNT(*) = q.n_expected_chunks
)

SELECT
    r.result_no,
    COALESCE(m.n, 0)        AS n_claims_found,
    COALESCE(c.n_cited, 0)  AS n_cited,
    COALESCE(c.n_unseen, 0) AS n_cited_unseen,
    COALESCE(c.n_gold, 0)   AS n_cited_gold,
    g.rank                  AS gold_complete_rank
FROM results AS r
JOIN runs AS u ON u.run_id = r.run_id AND u.system = 'grounded'
LEFT JOIN claimed AS m ON m.result_no = r.result_no
LEFT JOIN checked AS c ON c.result_no = r.result_no
LEFT JOIN complete AS g ON g.result_no = r.result_no
