-- cited_places: as sql/facts/cited_places.sql; a trace cites by id alone. What a refusal cites does not count.
-- kind: table
SELECT
    rowid                               AS result_no,
    UNNEST(range(1, len(cited) + 1))    AS citation_no,
    UNNEST(cited)                       AS chunk_id,
    CAST(NULL AS VARCHAR)               AS path,
    CAST(NULL AS VARCHAR)               AS axis,
    CAST(NULL AS DOUBLE)                AS low,
    CAST(NULL AS DOUBLE)                AS high,
    CAST(NULL AS DOUBLE)                AS bottom,
    CAST(NULL AS DOUBLE)                AS top
FROM traces
WHERE NOT is_refusal
