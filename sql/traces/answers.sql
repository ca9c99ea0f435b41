-- answers: as sql/facts/answers.sql.
-- kind: view
SELECT rowid AS result_no, nfc_normalize(COALESCE(claim, '')) AS answer
FROM traces
