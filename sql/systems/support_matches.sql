-- support_matches: the hits that are a support. A chunk that is returned more than once counts once, at its best rank.
-- columns: result_no, position, rank
-- kind: table
-- variants: none, if no run is of the anchor-labelled system and no label names a support
SELECT result_no, MIN(position) AS position, rank
FROM (
    SELECT
        result_no,
        position,
        rank,
        chunk_id,
        -- A hit without a chunk id is repeated by no other.
        CASE WHEN chunk_id IS NULL THEN position END AS nameless,
        MIN(rank) OVER (PARTITION BY result_no, chunk_id, CASE WHEN chunk_id IS NULL THEN position END) AS best
    FROM support_hits
) AS found
WHERE rank = best
GROUP BY result_no, chunk_id, nameless, rank
