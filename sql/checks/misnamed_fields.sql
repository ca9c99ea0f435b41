-- misnamed_fields: fields of sampled rows that look like a field that kbeval reads, if that field is missing.
-- columns: run_id, level, field (as kbeval reads it), found (as the rows spell it), query_id (the first such row),
--          n_rows (of those looked at)
-- kind: table
SELECT f.run_id, f.level, n.field, f.field AS found, MIN(f.query_id) AS query_id, COUNT(DISTINCT f.query_id) AS n_rows
FROM row_fields AS f
JOIN other_names AS n
    ON  n.level = f.level
    AND n.kind = f.kind
    AND n.other = REPLACE(REPLACE(LOWER(f.field), '_', ''), '-', '')
LEFT JOIN row_fields AS o
    ON  o.run_id = f.run_id
    AND o.query_id = f.query_id
    AND o.level = f.level
    AND o.item = f.item
    AND o.field = n.field
WHERE o.field IS NULL AND f.field <> n.field
GROUP BY f.run_id, f.level, n.field, f.field
