-- timeouts: the rows whose error is a timeout. Letters fold differently in other engines, so this is a fact.
-- columns: result_no, error
-- kind: view
-- variants: archived, if another engine reads the rows of an archive
SELECT result_no, error
FROM results
WHERE error IS NOT NULL AND (lower(error) LIKE '%timeout%' OR lower(error) LIKE '%timed out%')
