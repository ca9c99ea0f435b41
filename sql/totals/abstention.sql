-- abstention: for each run, the number of answered and refused queries, with and without the evidence.
-- columns: run_id, k (how deep evidence counts), answerable_answered, answerable_refused, unanswerable_answered,
--          unanswerable_refused; among the answerable ones whose evidence is labelled: answered_with,
--          answered_without, refused_with, refused_without
-- kind: table
WITH evidence AS (
    SELECT
        result_no,
        MIN(CASE WHEN is_expected_chunk OR is_support THEN rank END) AS rank,
        MIN(CASE WHEN is_expected_doc THEN rank END)                 AS doc_rank
    FROM expected_hits
    GROUP BY result_no
),

seen AS (
    SELECT
        a.run_id,
        u.top_k,
        a.should_refuse,
        a.refused,
        CASE
            WHEN a.n_expected_chunks + a.n_supports > 0 THEN COALESCE(e.rank <= u.top_k, false)
            WHEN a.n_expected_docs > 0                  THEN COALESCE(e.doc_rank <= u.top_k, false)
        END AS has_evidence
    FROM per_query AS a
    JOIN runs AS u ON u.run_id = a.run_id
    LEFT JOIN evidence AS e ON e.result_no = a.result_no
    WHERE a.in_run AND NOT a.failed AND a.refused IS NOT NULL AND a.should_refuse IS NOT NULL
)

SELECT
    run_id,
    top_k                                                                          AS k,
    COUNT(CASE WHEN NOT should_refuse AND NOT refused THEN 1 END)                  AS answerable_answered,
    COUNT(CASE WHEN NOT should_refuse AND refused THEN 1 END)                      AS answerable_refused,
    COUNT(CASE WHEN should_refuse AND NOT refused THEN 1 END)                      AS unanswerable_answered,
    COUNT(CASE WHEN should_refuse AND refused THEN 1 END)                          AS unanswerable_refused,
    COUNT(CASE WHEN NOT should_refuse AND NOT refused AND has_evidence THEN 1 END) AS answered_with,
    COUNT(CASE WHEN NOT should_refuse AND NOT refused AND NOT has_evidence THEN 1 END) AS answered_without,
    COUNT(CASE WHEN NOT should_refuse AND refused AND has_evidence THEN 1 END)     AS refused_with,
    COUNT(CASE WHEN NOT should_refuse AND refused AND NOT has_evidence THEN 1 END) AS refused_without
FROM seen
GROUP BY run_id, top_k
