-- span_pieces: the same spans cut into pieces that do not overlap, so that sizes can simply be added up.
-- columns: owner, major, minor, axis, low, high, bottom, top
-- kind: table
--
-- Most sets have one span and are left as they are. On a line each piece begins where everything before it has
-- ended. Regions are cut at every edge into columns first, and what lies in one column is stacked like that.
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
    SELECT * FROM counted WHERE n > 1 AND axis = 'region'
),

edges AS (
    SELECT owner, major, minor, axis, low AS edge FROM regions
    UNION
    SELECT owner, major, minor, axis, high FROM regions
),

strips AS (
    SELECT
        owner, major, minor, axis,
        edge                                                                   AS low,
        LEAD(edge) OVER (PARTITION BY owner, major, minor, axis ORDER BY edge) AS high
    FROM edges
),

stacked AS (
    SELECT
        c.owner, c.major, c.minor, c.axis, c.low, c.high, s.bottom, s.top,
        MAX(s.top) OVER (
            PARTITION BY c.owner, c.major, c.minor, c.axis, c.low
            ORDER BY s.bottom, s.top
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS below
    FROM strips AS c
    JOIN regions AS s
        ON  s.owner = c.owner
        AND s.major = c.major
        AND s.minor = c.minor
        AND s.axis = c.axis
        AND s.low <= c.low
        AND s.high >= c.high
)

SELECT owner, major, minor, axis, low, high, bottom, top
FROM counted
WHERE n = 1

UNION ALL
SELECT owner, major, minor, axis, GREATEST(low, COALESCE(before, low)), high, bottom, top
FROM lined
WHERE before IS NULL OR high > before

UNION ALL
SELECT owner, major, minor, axis, low, high, GREATEST(bottom, COALESCE(below, bottom)), top
FROM stacked
WHERE below IS NULL OR top > below
