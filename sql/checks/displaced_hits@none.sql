-- displaced_hits: as displaced_hits.sql, if every hit of a known chunk states the place that the tables have.
-- kind: view
SELECT
    CAST(NULL AS VARCHAR) AS run_id,
    CAST(NULL AS BIGINT)  AS n_compared,
    CAST(NULL AS BIGINT)  AS n_displaced,
    CAST(NULL AS BIGINT)  AS n_labels,
    CAST(NULL AS VARCHAR) AS query_id,
    CAST(NULL AS VARCHAR) AS chunk_id
WHERE false
