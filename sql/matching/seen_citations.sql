-- seen_citations: the chunks that an answer cites, each once.
-- columns: result_no, chunk_id, is_seen (it is among the hits)
-- kind: table
WITH cited AS (
    SELECT DISTINCT result_no, chunk_id FROM citations WHERE chunk_id IS NOT NULL
),

-- Only the hits that are cited, which are few.
seen AS (
    SELECT DISTINCT c.result_no, c.chunk_id
    FROM cited AS c
    JOIN hits AS h ON h.result_no = c.result_no AND h.chunk_id = c.chunk_id
)

SELECT c.result_no, c.chunk_id, s.chunk_id IS NOT NULL AS is_seen
FROM cited AS c
LEFT JOIN seen AS s ON s.result_no = c.result_no AND s.chunk_id = c.chunk_id
