-- table_spans: as table_spans.sql, if no known chunk has spans.
-- kind: view
SELECT
    CAST(NULL AS VARCHAR) AS text_key,
    CAST(NULL AS VARCHAR) AS kind,
    CAST(NULL AS VARCHAR) AS axis,
    CAST(NULL AS DOUBLE)  AS low,
    CAST(NULL AS DOUBLE)  AS high,
    CAST(NULL AS DOUBLE)  AS bottom,
    CAST(NULL AS DOUBLE)  AS top,
    false                 AS is_place
WHERE false
