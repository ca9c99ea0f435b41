-- row_fields: the fields of sampled rows, of the first hits in them and of their answers, as they are spelt.
-- columns: run_id, query_id, level ('row', 'hit', 'answer'), item (which hit; 0 elsewhere), field,
--          kind ('list', 'object', 'text', 'number', 'true or false', or 'nothing': null, or an empty list)
-- kind: table
WITH samples AS (
    SELECT
        CAST(run_id AS VARCHAR)   AS run_id,
        CAST(query_id AS VARCHAR) AS query_id,
        CASE WHEN is_strict_json(CAST(result_json AS VARCHAR)) THEN CAST(result_json AS VARCHAR) END AS row_json
    FROM stored_samples
),

named AS (
    SELECT s.run_id, s.query_id, 'row' AS level, 0 AS item, f.key AS field, f.type, f.value
    FROM samples AS s, json_each(s.row_json) AS f
    WHERE json_type(s.row_json) = 'OBJECT'

    UNION ALL
    SELECT s.run_id, s.query_id, 'hit', h.item, f.key, f.type, f.value
    FROM samples AS s,
        (VALUES (0, '$.hits_top_k[0]'), (1, '$.hits_top_k[1]'), (2, '$.hits_top_k[2]')) AS h (item, path),
        json_each(json_extract(s.row_json, h.path)) AS f
    WHERE json_type(s.row_json, h.path) = 'OBJECT'

    UNION ALL
    SELECT s.run_id, s.query_id, 'answer', 0, f.key, f.type, f.value
    FROM samples AS s, json_each(s.row_json, '$.answer') AS f
    WHERE json_type(s.row_json, '$.answer') = 'OBJECT'
)

SELECT
    run_id,
    query_id,
    level,
    item,
    field,
    CASE
        WHEN type = 'NULL' OR CAST(value AS VARCHAR) = '[]' THEN 'nothing'
        WHEN type = 'ARRAY'                                 THEN 'list'
        WHEN type = 'OBJECT'                                THEN 'object'
        WHEN type = 'VARCHAR'                               THEN 'text'
        WHEN type = 'BOOLEAN'                               THEN 'true or false'
        ELSE                                                     'number'
    END AS kind
FROM named
