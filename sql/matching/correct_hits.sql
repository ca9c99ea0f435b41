-- correct_hits: the hits that answer their query. A chunk that is returned more than once counts once, at its best rank.
-- columns: result_no, position, rank
-- kind: table
SELECT result_no, MIN(position) AS position, rank
FROM (
    SELECT
        result_no,
        position,
        rank,
        COALESCE(chunk_id, CAST(position AS STRING)) AS chunk,
        MIN(rank) OVER (PARTITION BY result_no, COALESCE(chunk_id, CAST(position AS STRING))) AS best
    FROM found_places
) AS found
WHERE rank = best
GROUP BY result_no, chunk, rank
