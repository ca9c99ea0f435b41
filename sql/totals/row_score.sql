-- row_score: the metric of a score that came with the rows, with the name {score}: the number in the row.
-- columns: one expression over the rows of one query in per_row_score
-- kind: view
--
-- Composed: one metric for each name that the configuration of a stored run lists under kbeval.scores.
MAX(CASE WHEN score_name = '{score}' THEN row_score END)
