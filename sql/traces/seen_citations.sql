-- seen_citations: as sql/matching/seen_citations.sql. What a refusal cites does not count.
-- kind: table
SELECT result_no, chunk_id, COALESCE(list_contains(retrieved, chunk_id), false) AS is_seen
FROM (
    SELECT rowid AS result_no, retrieved, UNNEST(different(cited)) AS chunk_id
    FROM traces
    WHERE NOT is_refusal
)
