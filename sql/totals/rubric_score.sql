-- rubric_score: the metric of a user-defined rubric with the name {rubric}: the judge's score.
-- columns: one expression over the rows of one query in per_judgement
-- kind: view
--
-- Composed: one metric, judge_NAME, for each user-defined rubric that a stored run was judged by.
MAX(CASE WHEN rubric = '{rubric}' THEN judge_score END)
