-- per_expected_hit: as sql/grains/per_expected_hit.sql: one row per relevant document that was found; a query with none
-- has one row without rank.
-- columns: all of per_query, and rank, is_expected_chunk, n_places
-- kind: view
SELECT
    a.*,
    l.rank,
    COALESCE(l.is_relevant, false)                AS is_expected_chunk,
    CASE WHEN l.is_relevant THEN 1 ELSE 0 END     AS n_places
FROM per_query AS a
LEFT JOIN label_finds AS l ON l.result_no = a.result_no AND l.is_relevant AND l.rank IS NOT NULL
