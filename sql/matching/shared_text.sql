-- shared_text: how much text a hit and an expected place have in common.
-- columns: result_no, position, rank, chunk_id, place, is_span_label, shared, hit_size, place_size
-- kind: table
WITH sizes AS (
    SELECT owner, major, minor, SUM((high - low) * (top - bottom)) AS size
    FROM span_pieces
    GROUP BY owner, major, minor
),

shared AS (
    SELECT
        n.result_no,
        n.position,
        p.place,
        p.is_span_label,
        -- How long a page is that is named as a whole is not known: any text on it is as good as all of it.
        CASE WHEN b.high >= 1e15 AND MAX(a.high) < 1e15 AND b.axis LIKE 'page %' THEN b.high - b.low
             ELSE SUM(
                 (LEAST(a.high, b.high) - GREATEST(a.low, b.low))
                 * (LEAST(a.top, b.top) - GREATEST(a.bottom, b.bottom))
             )
        END AS size
    FROM near_hits AS n
    JOIN expected_places AS p
        ON  p.query_id = n.query_id
        AND (p.doc_id IS NULL OR p.doc_id = n.doc_id OR p.doc_id = n.path)
    JOIN span_pieces AS a
        ON  a.owner = 'hit'
        AND a.major = CAST(n.result_no AS STRING)
        AND a.minor = CAST(n.position AS STRING)
    JOIN span_pieces AS b
        ON  b.owner = 'place'
        AND b.major = p.query_id
        AND b.minor = p.place
        AND b.axis = a.axis
    WHERE a.low < b.high
      AND b.low < a.high
      AND a.bottom < b.top
      AND b.bottom < a.top
    GROUP BY n.result_no, n.position, p.place, p.is_span_label, b.axis, b.low, b.high, b.bottom, b.top
),

summed AS (
    SELECT result_no, position, place, is_span_label, SUM(size) AS size
    FROM shared
    GROUP BY result_no, position, place, is_span_label
)

SELECT
    n.result_no,
    n.position,
    n.rank,
    n.chunk_id,
    s.place,
    s.is_span_label,
    s.size AS shared,
    -- With text on a page that is named as a whole, a hit is as large as the page.
    GREATEST(a.size, s.size) AS hit_size,
    b.size AS place_size
FROM summed AS s
JOIN near_hits AS n ON n.result_no = s.result_no AND n.position = s.position
JOIN sizes AS a
    ON  a.owner = 'hit'
    AND a.major = CAST(n.result_no AS STRING)
    AND a.minor = CAST(n.position AS STRING)
JOIN sizes AS b
    ON  b.owner = 'place'
    AND b.major = n.query_id
    AND b.minor = s.place
