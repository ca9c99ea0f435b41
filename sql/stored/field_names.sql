-- field_names: the fields of the stored rows, their answers and their hits: an index of `fields` and `hit_fields`.
-- columns: level ('row' or 'hit'), field (a name, or two names separated by a dot), path (for `fields ->> path`, or
--          `hit_fields ->> path`), kind ('list', 'object', 'text', 'number', 'true or false', or 'nothing': null; 'several'
--          if rows differ), n_values (rows or hits that have it), n_runs (runs that have it)
-- kind: table
-- shown: yes
WITH tops AS (
    SELECT 'row' AS level, f.run_id, e.key AS field, field_path(e.key) AS path, e.type, e.value
    FROM fields AS f, json_each(f.fields) AS e

    UNION ALL
    SELECT 'hit', f.run_id, e.key, field_path(e.key), e.type, e.value
    FROM hit_fields AS f, json_each(f.hit_fields) AS e
    WHERE json_type(f.hit_fields) = 'OBJECT'
),

named AS (
    SELECT level, run_id, field, path, type FROM tops

    UNION ALL
    SELECT t.level, t.run_id, t.field || '.' || e.key, t.path || ltrim(field_path(e.key), '$'), e.type
    FROM (SELECT * FROM tops WHERE type = 'OBJECT') AS t, json_each(t.value) AS e
)

SELECT
    level,
    field,
    path,
    CASE WHEN COUNT(DISTINCT kind) > 1 THEN 'several' ELSE COALESCE(MIN(kind), 'nothing') END AS kind,
    COUNT(*)               AS n_values,
    COUNT(DISTINCT run_id) AS n_runs
FROM (
    SELECT
        *,
        CASE
            WHEN type = 'NULL'    THEN NULL
            WHEN type = 'ARRAY'   THEN 'list'
            WHEN type = 'OBJECT'  THEN 'object'
            WHEN type = 'VARCHAR' THEN 'text'
            WHEN type = 'BOOLEAN' THEN 'true or false'
            ELSE                       'number'
        END AS kind
    FROM named
)
GROUP BY level, field, path
