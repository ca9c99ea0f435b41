-- citation_checks: as citation_checks.sql, if no answer has a citation.
-- kind: view
SELECT CAST(0 AS BIGINT) AS result_no, CAST(0 AS BIGINT) AS citation_no, false AS is_real WHERE false
