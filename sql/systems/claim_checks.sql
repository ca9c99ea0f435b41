-- claim_checks: the facts that the metrics of grounded question answering need, for each row of an imported trace.
-- columns: result_no, n_claims_found, n_cited, n_cited_unseen (not among the hits), n_cited_gold,
--          n_gold_found (expected chunks among the hits), last_gold_rank (the rank by which that many were found)
-- kind: table
-- variants: none, if no run comes from grounded question answering
WITH checked AS (
    SELECT
        c.result_no,
        COUNT(*)                                  AS n_cited,
        COUNT(CASE WHEN NOT c.is_seen THEN 1 END) AS n_unseen,
        COUNT(w.chunk_id)                         AS n_gold
    FROM seen_citations AS c
    LEFT JOIN wanted_chunks AS w ON w.result_no = c.result_no AND w.chunk_id = c.chunk_id
    GROUP BY c.result_no
),

gold AS (
    SELECT result_no, COUNT(*) AS n, MAX(rank) AS rank
    FROM id_matches
    GROUP BY result_no
)

SELECT
    r.result_no,
    COALESCE(m.n, 0)        AS n_claims_found,
    COALESCE(c.n_cited, 0)  AS n_cited,
    COALESCE(c.n_unseen, 0) AS n_cited_unseen,
    COALESCE(c.n_gold, 0)   AS n_cited_gold,
    COALESCE(g.n, 0)        AS n_gold_found,
    g.rank                  AS last_gold_rank
FROM results AS r
JOIN runs AS u ON u.run_id = r.run_id AND u.system = 'grounded'
LEFT JOIN claims_found AS m ON m.result_no = r.result_no
LEFT JOIN checked AS c ON c.result_no = r.result_no
LEFT JOIN gold AS g ON g.result_no = r.result_no
