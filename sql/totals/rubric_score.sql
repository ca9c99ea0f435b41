-- rubric_score: the metric of an own rubric, whose name is {rubric}: what the judge gave.
-- columns: one expression over the rows of one query in per_judgement
-- kind: view
--
-- Composed: one metric, judge_NAME, for each own rubric that a stored run was judged by.
MAX(CASE WHEN rubric = '{rubric}' THEN judge_score END)
