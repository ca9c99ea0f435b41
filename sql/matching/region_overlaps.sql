-- region_overlaps: which regions of a set cover part of a later region, and which part.
-- columns: owner, major, minor, place (the one that is covered in part, as in region_sets), low, high, bottom, top (what
--          is covered of it)
-- kind: table
SELECT
    a.owner,
    a.major,
    a.minor,
    a.place,
    GREATEST(a.low, b.low)       AS low,
    LEAST(a.high, b.high)        AS high,
    GREATEST(a.bottom, b.bottom) AS bottom,
    LEAST(a.top, b.top)          AS top
FROM region_sets AS a
JOIN region_sets AS b
    ON  b.owner = a.owner
    AND b.major = a.major
    AND b.minor = a.minor
    AND b.place < a.place
    AND b.high > a.low
    AND b.bottom < a.top
    AND b.top > a.bottom
