-- complex_sets: as complex_sets.sql, if no span is a region.
-- kind: view
SELECT '' AS owner, '' AS major, '' AS minor WHERE false
