-- folded_answers: the text of each answer as folded() makes the claims that it is checked against.
-- columns: result_no, answer
-- kind: view
--
-- Answers are normalised already.
SELECT result_no, replace(lower(answer), 'ς', 'σ') AS answer
FROM answers
