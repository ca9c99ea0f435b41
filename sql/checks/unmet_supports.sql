-- unmet_supports: the paths of supports, if no hit of any run has any of them: then they are probably spelt differently. A
-- single file that is never retrieved may be a miss.
-- columns: path, query_id (the first whose support is there)
-- kind: view
SELECT s.path, MIN(s.query_id) AS query_id
FROM supports AS s
WHERE (SELECT COUNT(path) FROM hit_anchors) > 0
  AND (
      SELECT COUNT(*)
      FROM supports AS t
      WHERE t.path IN (SELECT path FROM hit_anchors WHERE path IS NOT NULL)
  ) = 0
GROUP BY s.path
