-- sightings: as sightings.sql, if the tables have the place of every expected chunk.
-- kind: view
SELECT
    CAST(NULL AS VARCHAR) AS chunk_id,
    CAST(NULL AS VARCHAR) AS chunker_version,
    CAST(NULL AS VARCHAR) AS doc_id,
    CAST(NULL AS VARCHAR) AS path,
    CAST(NULL AS VARCHAR) AS spans_text,
    false                 AS is_cited
WHERE false
