-- per_judgement: one row per judgement, with the columns of its query in `per_query`; a query without judgements has one
-- row without rubric.
-- kind: view
-- columns: all of per_query, and
--   rubric                 the name of the rubric
--   judge_score            the judge's score; null: unscored
--   is_scored              the judge gave a score
--   n_supported, n_unsupported  claims that the judge found; 0 if the rubric does not ask for them
SELECT
    a.*,
    j.rubric,
    j.score                       AS judge_score,
    COALESCE(j.is_scored, false)  AS is_scored,
    COALESCE(c.n_supported, 0)    AS n_supported,
    COALESCE(c.n_unsupported, 0)  AS n_unsupported
FROM per_query AS a
LEFT JOIN judgements AS j ON j.result_no = a.result_no
LEFT JOIN (
    SELECT
        result_no,
        rubric,
        COUNT(CASE WHEN is_supported THEN 1 END)     AS n_supported,
        COUNT(CASE WHEN NOT is_supported THEN 1 END) AS n_unsupported
    FROM judged_claims
    GROUP BY result_no, rubric
) AS c ON c.result_no = j.result_no AND c.rubric = j.rubric
