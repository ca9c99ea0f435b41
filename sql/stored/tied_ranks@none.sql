-- tied_ranks: as tied_ranks.sql, if every rank is the position of its hit in the list.
-- kind: view
SELECT CAST(0 AS BIGINT) AS result_no, CAST(0 AS BIGINT) AS position, CAST(0 AS BIGINT) AS rank WHERE false
