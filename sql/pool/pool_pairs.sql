-- pool_pairs: items of one query that are the same text: the same chunk, the same text by its hash, or places that
-- overlap by more than half of both.
-- columns: item_no, other_no (greater than item_no)
-- kind: table
WITH sizes AS (
    SELECT item_no, SUM(high - low) AS size FROM pool_pieces GROUP BY item_no
),

shared AS (
    SELECT a.item_no, b.item_no AS other_no, SUM(LEAST(a.high, b.high) - GREATEST(a.low, b.low)) AS size
    FROM pool_pieces AS a
    JOIN pool_pieces AS b
        ON  b.query_id = a.query_id
        AND b.doc_id = a.doc_id
        AND b.axis = a.axis
        AND b.item_no > a.item_no
    WHERE a.low < b.high AND b.low < a.high
    GROUP BY a.item_no, b.item_no
)

SELECT s.item_no, s.other_no
FROM shared AS s
JOIN sizes AS a ON a.item_no = s.item_no
JOIN sizes AS b ON b.item_no = s.other_no
WHERE 2 * s.size > a.size AND 2 * s.size > b.size

UNION
SELECT a.item_no, b.item_no
FROM pool_items AS a
JOIN pool_items AS b
    ON  b.query_id = a.query_id
    AND b.chunk_id = a.chunk_id
    AND b.chunker_version IS NOT DISTINCT FROM a.chunker_version
    AND b.item_no > a.item_no
