-- support_matches: as support_matches.sql, if no run is of the anchor-labelled system and no label names a support.
-- kind: view
SELECT CAST(0 AS BIGINT) AS result_no, CAST(0 AS BIGINT) AS position, CAST(0 AS BIGINT) AS rank WHERE false
