-- place_counts: as place_counts.sql, if chunk ids decide everywhere.
-- kind: view
SELECT 0 AS result_no, 0 AS n_places, true AS is_matchable WHERE false
