-- sides: one row per query of a run, with the facts that a comparison needs.
-- columns: run_id, query_id, result_no, matching, hit_rank (of the first correct hit), doc_rank (of the first hit in an
--          expected document), failed, refused, should_refuse, keeps_rules, cites_well (null: not applicable)
-- kind: table
WITH first_correct AS (
    SELECT result_no, MIN(rank) AS rank FROM correct_hits GROUP BY result_no
),

first_near AS (
    SELECT result_no, MIN(rank) AS rank FROM near_hits GROUP BY result_no
)

SELECT
    a.run_id,
    a.query_id,
    a.result_no,
    m.matching,
    c.rank AS hit_rank,
    n.rank AS doc_rank,
    a.failed,
    a.refused,
    a.should_refuse,
    CASE WHEN a.has_answer AND NOT a.failed AND a.n_rules > 0
         THEN a.n_rules_broken = 0 END AS keeps_rules,
    CASE WHEN a.has_answer AND a.grounded AND NOT a.failed AND a.chunks_known
         THEN a.n_citations > 0 AND a.n_citations_resolved = a.n_citations END AS cites_well
FROM per_query AS a
LEFT JOIN matching AS m ON m.result_no = a.result_no
LEFT JOIN first_correct AS c ON c.result_no = a.result_no
LEFT JOIN first_near AS n ON n.result_no = a.result_no
WHERE a.in_run
