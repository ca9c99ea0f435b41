-- hits: as sql/facts/hits.sql. A retrieved id has its place in the list as its rank.
-- kind: view
SELECT
    result_no,
    position,
    position              AS rank,
    chunk_id,
    CAST(NULL AS VARCHAR) AS doc_id,
    CAST(NULL AS DOUBLE)  AS score
FROM trace_hits
