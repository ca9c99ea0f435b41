-- span_pieces: as span_pieces.sql, if no span is a region.
-- kind: table
SELECT owner, major, minor, axis, GREATEST(low, COALESCE(before, low)) AS low, high, bottom, top
FROM (
    SELECT
        owner, major, minor, axis, low, high, bottom, top,
        MAX(high) OVER (
            PARTITION BY owner, major, minor, axis
            ORDER BY low, high
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
    FROM span_sets
) AS lined
WHERE before IS NULL OR high > before
