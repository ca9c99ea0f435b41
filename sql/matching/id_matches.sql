-- id_matches: the hits that are an expected chunk. A chunk that is returned more than once counts once, at its best rank.
-- columns: result_no, position, rank, place (the chunk's id), doc_id (of the hit; null: not stated)
-- kind: table
WITH found AS (
    SELECT h.result_no, h.chunk_id, h.rank, h.position, h.doc_id
    FROM wanted_chunks AS w
    JOIN hits AS h ON h.result_no = w.result_no AND h.chunk_id = w.chunk_id
),

best AS (
    SELECT result_no, chunk_id, MIN(rank) AS rank, MIN(position) AS position, MIN(doc_id) AS doc_id, COUNT(*) AS n
    FROM found
    GROUP BY result_no, chunk_id
)

SELECT result_no, position, rank, chunk_id AS place, doc_id
FROM best
WHERE n = 1

-- Only duplicates need a second step: the position of the best rank. No two hits of a ranking have the same one.
UNION ALL
SELECT b.result_no, MIN(f.position), b.rank, b.chunk_id, MIN(f.doc_id)
FROM best AS b
JOIN found AS f ON f.result_no = b.result_no AND f.chunk_id = b.chunk_id AND f.rank = b.rank
WHERE b.n > 1
GROUP BY b.result_no, b.chunk_id, b.rank
