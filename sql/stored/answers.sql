-- answers: the text of each answer, normalised (NFC) like the rules that it is checked against.
-- columns: result_no, answer
-- kind: view
SELECT p.result_no, nfc_normalize(COALESCE(p.r.answer.answer, '')) AS answer
FROM results AS r
JOIN parsed AS p ON p.result_no = r.result_no
WHERE r.has_answer
