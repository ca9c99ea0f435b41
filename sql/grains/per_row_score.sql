-- per_row_score: one row per score that came with a row, with the columns of its query in `per_query`; a query without
-- such scores has one row without score_name.
-- kind: view
-- columns: all of per_query, and
--   score_name             the name of the score, e.g. 'ragas.faithfulness'
--   row_score              the score; null: the tool could not score it
SELECT
    a.*,
    s.score_name,
    s.row_score
FROM per_query AS a
LEFT JOIN row_scores AS s ON s.result_no = a.result_no
