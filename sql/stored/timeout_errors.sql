-- timeout_errors: the different errors that are a timeout, as in timeouts.
-- columns: error
-- kind: table
SELECT error
FROM errors
WHERE lower(error) LIKE '%timeout%' OR lower(error) LIKE '%timed out%'
