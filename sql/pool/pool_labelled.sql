-- pool_labelled: the items that the labels of the golden file name: by id, or by a place of which they contain half.
-- columns: item_no
-- kind: table
WITH place_sizes AS (
    SELECT query_id, place, SUM(high - low) AS size
    FROM pool_places
    GROUP BY query_id, place
),

item_sizes AS (
    SELECT item_no, SUM(high - low) AS size FROM pool_pieces GROUP BY item_no
),

shared AS (
    SELECT p.item_no, e.query_id, e.place, e.is_span_label, SUM(LEAST(p.high, e.high) - GREATEST(p.low, e.low)) AS size
    FROM pool_places AS e
    JOIN pool_pieces AS p
        ON  p.query_id = e.query_id
        AND p.axis = e.axis
        AND p.doc_id = e.doc_id
    WHERE p.low < e.high AND e.low < p.high
    GROUP BY p.item_no, e.query_id, e.place, e.is_span_label
)

SELECT i.item_no
FROM pool_items AS i
JOIN expected_chunks AS e ON e.query_id = i.query_id AND e.chunk_id = i.chunk_id

UNION
SELECT s.item_no
FROM shared AS s
JOIN place_sizes AS l ON l.query_id = s.query_id AND l.place = s.place
JOIN item_sizes AS i ON i.item_no = s.item_no
WHERE 2 * s.size >= CASE WHEN s.is_span_label THEN l.size ELSE LEAST(l.size, i.size) END
