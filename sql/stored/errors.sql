-- errors: the different errors of rows.
-- columns: error
-- kind: table
SELECT DISTINCT error FROM results WHERE error IS NOT NULL
