-- span_pieces: the same spans cut into pieces that do not overlap, so that sizes can simply be summed.
-- columns: owner, major, minor, axis, low, high, bottom, top
-- kind: table
-- variants: lines, if no span is a region
--
-- Most sets have one span and are left as they are. On a line, each piece begins where everything before it has ended. If
-- earlier regions cover part of a region, the rest is kept: it is cut into columns where those begin and end, and each
-- column into the gaps between them. Most regions overlap no other, and then nothing is cut.
WITH counted AS (
    SELECT *, COUNT(*) OVER (PARTITION BY owner, major, minor, axis) AS n
    FROM span_sets
),

lined AS (
    SELECT
        owner, major, minor, axis, low, high, bottom, top,
        MAX(high) OVER (
            PARTITION BY owner, major, minor, axis
            ORDER BY low, high
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
    FROM counted
    WHERE n > 1 AND axis <> 'region'
),

regions AS (
    SELECT r.*
    FROM region_sets AS r
    LEFT JOIN complex_sets AS c ON c.owner = r.owner AND c.major = r.major AND c.minor = r.minor
    WHERE c.owner IS NULL
),

covers AS (
    SELECT o.*
    FROM region_overlaps AS o
    LEFT JOIN complex_sets AS c ON c.owner = o.owner AND c.major = o.major AND c.minor = o.minor
    WHERE c.owner IS NULL
),

covered AS (
    SELECT DISTINCT owner, major, minor, place FROM covers
),

edges AS (
    SELECT owner, major, minor, place, low AS edge FROM covers
    UNION
    SELECT owner, major, minor, place, high FROM covers
    UNION
    SELECT r.owner, r.major, r.minor, r.place, r.low
    FROM regions AS r
    JOIN covered AS c ON c.owner = r.owner AND c.major = r.major AND c.minor = r.minor AND c.place = r.place
    UNION
    SELECT r.owner, r.major, r.minor, r.place, r.high
    FROM regions AS r
    JOIN covered AS c ON c.owner = r.owner AND c.major = r.major AND c.minor = r.minor AND c.place = r.place
),

strips AS (
    SELECT
        owner, major, minor, place,
        edge                                                                    AS low,
        LEAD(edge) OVER (PARTITION BY owner, major, minor, place ORDER BY edge) AS high
    FROM edges
),

-- The covered part of each column, and at its upper end a mark that closes the last gap.
walls AS (
    SELECT s.owner, s.major, s.minor, s.place, s.low, s.high, c.bottom, c.top
    FROM strips AS s
    JOIN covers AS c
        ON  c.owner = s.owner
        AND c.major = s.major
        AND c.minor = s.minor
        AND c.place = s.place
        AND c.low <= s.low
        AND c.high >= s.high

    UNION ALL
    SELECT s.owner, s.major, s.minor, s.place, s.low, s.high, r.top, r.top
    FROM strips AS s
    JOIN regions AS r ON r.owner = s.owner AND r.major = s.major AND r.minor = s.minor AND r.place = s.place
    WHERE s.high IS NOT NULL
),

gaps AS (
    SELECT
        owner, major, minor, place, low, high,
        MAX(top) OVER (
            PARTITION BY owner, major, minor, place, low
            ORDER BY bottom, top
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        )      AS bottom,
        bottom AS top
    FROM walls
)

SELECT owner, major, minor, axis, low, high, bottom, top
FROM counted
WHERE n = 1

UNION ALL
SELECT owner, major, minor, axis, GREATEST(low, COALESCE(before, low)), high, bottom, top
FROM lined
WHERE before IS NULL OR high > before

-- Duplicate regions count once.
UNION ALL
SELECT owner, major, minor, axis, MIN(low), MIN(high), MIN(bottom), MIN(top)
FROM counted
WHERE n > 1 AND axis = 'region'
GROUP BY owner, major, minor, axis
HAVING MIN(low) = MAX(low) AND MIN(high) = MAX(high) AND MIN(bottom) = MAX(bottom) AND MIN(top) = MAX(top)

UNION ALL
SELECT r.owner, r.major, r.minor, 'region', r.low, r.high, r.bottom, r.top
FROM regions AS r
LEFT JOIN covered AS c ON c.owner = r.owner AND c.major = r.major AND c.minor = r.minor AND c.place = r.place
WHERE c.owner IS NULL

UNION ALL
SELECT g.owner, g.major, g.minor, 'region', g.low, g.high, COALESCE(g.bottom, r.bottom), g.top
FROM gaps AS g
JOIN regions AS r ON r.owner = g.owner AND r.major = g.major AND r.minor = g.minor AND r.place = g.place
WHERE g.top > COALESCE(g.bottom, r.bottom)
