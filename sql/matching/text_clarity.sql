-- text_clarity: for queries that are labelled by expected_spans, whether the text of hits can be measured.
-- columns: result_no
--   is_clear           the place of every hit is known, and all are counted in the unit of the labels
--   is_near_clear      the same for the hits in documents of the labels
-- kind: table
--
-- If one document has more than 1,000 spans, or more than 60 areas, of one query, they are not compared.
WITH labels AS (
    SELECT result_no, MIN(unit) AS unit, COUNT(DISTINCT unit) AS n_units
    FROM text_spans
    WHERE rank IS NULL
    GROUP BY result_no
),

crowded AS (
    SELECT result_no
    FROM text_spans
    GROUP BY result_no, doc_id, axis
    HAVING COUNT(*) > CASE WHEN axis = 'region' THEN 60 ELSE 1000 END
        OR MAX(GREATEST(ABS(low), ABS(high), ABS(bottom), ABS(top))) > 1e15
),

too_many AS (
    SELECT DISTINCT result_no FROM crowded
)

SELECT
    s.result_no,
    MAX(l.n_units) = 1
        AND COUNT(c.result_no) = 0
        AND COUNT(CASE WHEN s.unit IS NULL OR s.unit <> l.unit THEN 1 END) = 0               AS is_clear,
    MAX(l.n_units) = 1
        AND COUNT(c.result_no) = 0
        AND COUNT(CASE WHEN s.is_near AND (s.unit IS NULL OR s.unit <> l.unit) THEN 1 END) = 0 AS is_near_clear
FROM text_spans AS s
JOIN labels AS l ON l.result_no = s.result_no
LEFT JOIN too_many AS c ON c.result_no = s.result_no
GROUP BY s.result_no
