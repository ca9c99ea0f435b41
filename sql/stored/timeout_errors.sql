-- timeout_errors: the different errors that are a timeout, as timeouts says.
-- columns: error
-- kind: table
SELECT error
FROM errors
WHERE lower(error) LIKE '%timeout%' OR lower(error) LIKE '%timed out%'
