-- label_ranks: for each label of a result, the rank at which it was found.
-- columns: result_no, place (a chunk's id, or a span's name), grade, is_relevant, rank (null: it was not found),
--          is_judgement (false: hits are matched by spans, so it is unknown which of the other hits were judged)
-- kind: table
-- variants: ids, if chunk ids decide for every run
--
-- By id, every judged chunk is a label. By spans only expected places are labels: the places of other judged chunks are
-- unknown. One hit may then cover several places. They take its rank and the free ranks after it, so that each rank has one
-- label, as in the ideal ranking.
WITH placed AS (
    SELECT m.result_no, p.place, COALESCE(MAX(g.grade), 1) AS grade, MIN(f.rank) AS rank
    FROM matching AS m
    JOIN expected_places AS p ON p.query_id = m.query_id
    LEFT JOIN graded_labels AS g ON g.query_id = p.query_id AND g.chunk_id = p.place AND NOT p.is_span_label
    LEFT JOIN found_places AS f ON f.result_no = m.result_no AND f.place = p.place
    WHERE m.matching = 'span' AND p.spans_text IS NOT NULL
    GROUP BY m.result_no, p.place
),

ordered AS (
    SELECT
        result_no, place, grade, rank,
        ROW_NUMBER() OVER (PARTITION BY result_no ORDER BY rank, grade DESC, place) AS number
    FROM placed
    WHERE rank IS NOT NULL
)

SELECT m.result_no, g.chunk_id AS place, g.grade, g.is_relevant, MIN(h.rank) AS rank, true AS is_judgement
FROM matching AS m
JOIN graded_labels AS g ON g.query_id = m.query_id
LEFT JOIN hits AS h ON h.result_no = m.result_no AND h.chunk_id = g.chunk_id
WHERE m.matching = 'exact'
GROUP BY m.result_no, g.chunk_id, g.grade, g.is_relevant

UNION ALL
SELECT
    result_no, place, grade, true,
    number + MAX(rank - number) OVER (PARTITION BY result_no ORDER BY number),
    false
FROM ordered

UNION ALL
SELECT result_no, place, grade, true, NULL, false
FROM placed
WHERE rank IS NULL
