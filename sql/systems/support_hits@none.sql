-- support_hits: as support_hits.sql, if no run is of the anchor-labelled system and no label names a support.
-- kind: view
SELECT
    CAST(0 AS BIGINT) AS result_no,
    CAST(0 AS BIGINT) AS position,
    CAST(0 AS BIGINT) AS rank,
    ''                AS chunk_id,
    CAST(0 AS BIGINT) AS support_no,
    false             AS is_verified
WHERE false
