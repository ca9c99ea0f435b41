-- timeouts: as timeouts.sql, if each different error was looked at once.
-- kind: view
SELECT r.result_no, r.error
FROM results AS r
JOIN timeout_errors AS t ON t.error = r.error
