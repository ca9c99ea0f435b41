-- id_matches: the hits that are an expected chunk. A chunk that comes back twice counts once, at its best rank.
-- columns: result_no, position, rank, place (the chunk's id)
-- kind: table
WITH found AS (
    SELECT h.result_no, h.chunk_id, h.rank, h.position
    FROM results AS r
    JOIN expected_chunks AS e ON e.query_id = r.query_id
    JOIN hits AS h ON h.result_no = r.result_no AND h.chunk_id = e.chunk_id
),

best AS (
    SELECT result_no, chunk_id, MIN(rank) AS rank
    FROM found
    GROUP BY result_no, chunk_id
)

SELECT b.result_no, MIN(f.position) AS position, b.rank, b.chunk_id AS place
FROM best AS b
JOIN found AS f ON f.result_no = b.result_no AND f.chunk_id = b.chunk_id AND f.rank = b.rank
GROUP BY b.result_no, b.chunk_id, b.rank
