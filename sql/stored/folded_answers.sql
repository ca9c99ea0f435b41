-- folded_answers: the text of each answer, folded like the claims that it is checked against.
-- columns: result_no, answer
-- kind: view
--
-- Answers are already normalised.
SELECT result_no, replace(lower(answer), 'ς', 'σ') AS answer
FROM answers
