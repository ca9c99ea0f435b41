-- span_pieces: the same spans cut into pieces that do not overlap, so that sizes can simply be added up.
-- columns: owner, major, minor, axis, low, high, bottom, top
-- kind: table
--
-- Most sets have one span and are left as they are. Others are cut at every edge into columns, and what lies in
-- one column is stacked: each piece begins where everything below it has ended.
WITH counted AS (
    SELECT *, COUNT(*) OVER (PARTITION BY owner, major, minor, axis) AS n
    FROM span_sets
),

several AS (
    SELECT * FROM counted WHERE n > 1
),

edges AS (
    SELECT owner, major, minor, axis, low AS edge FROM several
    UNION
    SELECT owner, major, minor, axis, high FROM several
),

strips AS (
    SELECT
        owner, major, minor, axis,
        edge                                                                       AS low,
        LEAD(edge) OVER (PARTITION BY owner, major, minor, axis ORDER BY edge)     AS high
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
    JOIN several AS s
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
SELECT owner, major, minor, axis, low, high, GREATEST(bottom, COALESCE(below, bottom)), top
FROM stacked
WHERE below IS NULL OR top > below
