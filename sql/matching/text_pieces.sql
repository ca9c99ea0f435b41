-- text_pieces: expected text and the text of hits, cut where any of it begins or ends, so that each piece counts once.
-- columns: result_no, size, rank (of the first hit that contains it; null: none does), is_expected
-- kind: table
WITH clear AS (
    SELECT s.result_no, s.rank, COALESCE(s.doc_id, '') AS doc_id, s.axis, s.low, s.high, s.bottom, s.top
    FROM text_spans AS s
    JOIN text_clarity AS c ON c.result_no = s.result_no
    WHERE s.axis IS NOT NULL AND c.is_near_clear
),

across AS (
    SELECT
        result_no, doc_id, axis,
        edge                                                                        AS low,
        LEAD(edge) OVER (PARTITION BY result_no, doc_id, axis ORDER BY edge)        AS high
    FROM (
        SELECT result_no, doc_id, axis, low AS edge FROM clear
        UNION
        SELECT result_no, doc_id, axis, high FROM clear
    ) AS edges
),

upwards AS (
    SELECT
        result_no, doc_id, axis,
        edge                                                                        AS bottom,
        LEAD(edge) OVER (PARTITION BY result_no, doc_id, axis ORDER BY edge)        AS top
    FROM (
        SELECT result_no, doc_id, axis, bottom AS edge FROM clear
        UNION
        SELECT result_no, doc_id, axis, top FROM clear
    ) AS edges
)

SELECT
    x.result_no,
    CAST((x.high - x.low) * (y.top - y.bottom) AS DECIMAL(38, 6)) AS size,
    MIN(s.rank)                                                   AS rank,
    MAX(CASE WHEN s.rank IS NULL THEN 1 ELSE 0 END) = 1           AS is_expected
FROM across AS x
JOIN upwards AS y ON y.result_no = x.result_no AND y.doc_id = x.doc_id AND y.axis = x.axis
JOIN clear AS s
    ON  s.result_no = x.result_no
    AND s.doc_id = x.doc_id
    AND s.axis = x.axis
    AND s.low <= x.low
    AND s.high >= x.high
    AND s.bottom <= y.bottom
    AND s.top >= y.top
WHERE x.high IS NOT NULL AND y.top IS NOT NULL
GROUP BY x.result_no, x.doc_id, x.axis, x.low, x.high, y.bottom, y.top
