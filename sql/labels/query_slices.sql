-- query_slices: which slice of each field a golden query belongs to; one row per tag for tags.
-- columns: query_id, field, slice
-- kind: table
SELECT query_id, 'category' AS field, category AS slice FROM queries WHERE category IS NOT NULL
UNION ALL
SELECT query_id, 'difficulty', difficulty FROM queries WHERE difficulty IS NOT NULL
UNION ALL
SELECT query_id, 'lang', lang FROM queries WHERE lang IS NOT NULL
UNION ALL
SELECT query_id, 'group', query_group FROM queries WHERE query_group IS NOT NULL
UNION ALL
SELECT DISTINCT e.id, 'tags', UNNEST(e.tags) FROM golden_entries
