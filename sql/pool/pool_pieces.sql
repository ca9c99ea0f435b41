-- pool_pieces: the places of items as pieces that do not overlap, so that sizes can be summed.
-- columns: item_no, query_id, doc_id, axis, low, high
-- kind: table
WITH placed AS (
    SELECT DISTINCT
        item_no, query_id, doc_id, span_axis(span.kind, span.page) AS axis, span_low(span) AS low, span_high(span) AS high
    FROM (SELECT item_no, query_id, doc_id, UNNEST(spans_in(spans_text)) AS span FROM pool_items)
    WHERE is_place(span) AND span.kind <> 'region' AND doc_id IS NOT NULL
),

lined AS (
    SELECT
        *,
        MAX(high) OVER (
            PARTITION BY item_no, axis ORDER BY low, high ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
    FROM placed
)

SELECT item_no, query_id, doc_id, axis, GREATEST(low, COALESCE(before, low)) AS low, high
FROM lined
WHERE before IS NULL OR high > before
