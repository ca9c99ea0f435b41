-- cited_places: as cited_places.sql, if no answer has a citation.
-- kind: view
SELECT
    CAST(0 AS BIGINT)     AS result_no,
    CAST(0 AS BIGINT)     AS citation_no,
    CAST(NULL AS VARCHAR) AS chunk_id,
    CAST(NULL AS VARCHAR) AS path,
    CAST(NULL AS VARCHAR) AS axis,
    CAST(NULL AS DOUBLE)  AS low,
    CAST(NULL AS DOUBLE)  AS high,
    CAST(NULL AS DOUBLE)  AS bottom,
    CAST(NULL AS DOUBLE)  AS top,
    false                 AS is_malformed
WHERE false
