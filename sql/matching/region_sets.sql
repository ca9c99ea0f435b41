-- region_sets: the regions of places and hits that have several of them, each once, without those inside another one.
-- columns: owner, major, minor (as in span_sets), place (its number in its set, by where it begins), low, high, bottom,
--          top
-- kind: table
WITH different AS (
    SELECT DISTINCT owner, major, minor, low, high, bottom, top
    FROM span_sets
    WHERE axis = 'region'
),

counted AS (
    SELECT *, COUNT(*) OVER (PARTITION BY owner, major, minor) AS n
    FROM different
),

-- Larger sets are in complex_sets.
several AS (
    SELECT * FROM counted WHERE n BETWEEN 2 AND 5000
),

inner_ones AS (
    SELECT DISTINCT a.owner, a.major, a.minor, a.low, a.high, a.bottom, a.top
    FROM several AS a
    JOIN several AS b
        ON  b.owner = a.owner
        AND b.major = a.major
        AND b.minor = a.minor
        AND b.low <= a.low
        AND b.high >= a.high
        AND b.bottom <= a.bottom
        AND b.top >= a.top
    WHERE b.low < a.low OR b.high > a.high OR b.bottom < a.bottom OR b.top > a.top
)

SELECT
    s.owner,
    s.major,
    s.minor,
    ROW_NUMBER() OVER (PARTITION BY s.owner, s.major, s.minor ORDER BY s.low, s.high, s.bottom, s.top) AS place,
    s.low,
    s.high,
    s.bottom,
    s.top
FROM several AS s
LEFT JOIN inner_ones AS i
    ON  i.owner = s.owner
    AND i.major = s.major
    AND i.minor = s.minor
    AND i.low = s.low
    AND i.high = s.high
    AND i.bottom = s.bottom
    AND i.top = s.top
WHERE i.owner IS NULL
