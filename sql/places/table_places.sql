-- table_places: the texts of spans in the table `chunks` and among the kept spans with at least one meaningful span. A
-- caption is meaningful, although it has no position.
-- columns: spans_text, place_text (the same for the same place, however it is written)
-- kind: table
WITH places AS (
    SELECT
        text_key,
        COALESCE(
            STRING_AGG(
                CASE WHEN is_place THEN box_text(axis, low, high, bottom, top) END, ' '
                ORDER BY axis, low, high, bottom, top
            ),
            ''
        ) AS place_text
    FROM table_spans
    WHERE is_place OR kind = 'caption'
    GROUP BY text_key
)

SELECT t.spans_text, p.place_text
FROM (SELECT spans_text FROM chunks UNION SELECT spans_text FROM kept_chunks) AS t
JOIN places AS p ON p.text_key = span_key(t.spans_text)
