-- reading_cost: as reading_cost.sql, where no chunk and no place is expected.
-- kind: view
SELECT 0 AS result_no, CAST(NULL AS DOUBLE) AS tokens_to_hit, false AS sizes_known WHERE false
