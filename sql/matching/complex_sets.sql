-- complex_sets: the places and hits whose regions are too many, or overlap too much, to be compared with others.
-- columns: owner, major, minor (as in span_sets)
-- kind: table
-- variants: none, if no span is a region
--
-- More than 5,000 different regions; or overlaps that would be cut into some million pieces. Regions found on a page number
-- some dozens, and seldom overlap.
SELECT owner, major, minor
FROM (SELECT DISTINCT owner, major, minor, low, high, bottom, top FROM span_sets WHERE axis = 'region') AS d
GROUP BY owner, major, minor
HAVING COUNT(*) > 5000

UNION ALL
SELECT owner, major, minor
FROM (SELECT owner, major, minor, place, COUNT(*) AS n FROM region_overlaps GROUP BY owner, major, minor, place) AS p
GROUP BY owner, major, minor
HAVING SUM(n * n) > 1000000
