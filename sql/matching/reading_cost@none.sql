-- reading_cost: as reading_cost.sql, if no chunk or place is expected, or no hit has a known size.
-- kind: view
SELECT 0 AS result_no, CAST(NULL AS DOUBLE) AS tokens_to_hit, false AS sizes_known WHERE false
