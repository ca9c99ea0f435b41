-- unmet_axes: labels that no hit of a run can match, because none of their kinds of position is used by its hits or by a
-- known chunk. If its place is not known, it is not listed.
-- columns: run_id, axis, query_id (the first of them), n_queries
-- kind: view
WITH met AS (
    SELECT DISTINCT u.run_id, l.query_id
    FROM label_axes AS l
    JOIN used_axes AS u ON u.axis = l.axis
)

SELECT r.run_id, l.axis, MIN(l.query_id) AS query_id, COUNT(DISTINCT l.query_id) AS n_queries
FROM results AS r
JOIN label_axes AS l ON l.query_id = r.query_id
JOIN (SELECT DISTINCT run_id FROM used_axes) AS p ON p.run_id = r.run_id
LEFT JOIN met AS m ON m.run_id = r.run_id AND m.query_id = r.query_id
WHERE m.query_id IS NULL
GROUP BY r.run_id, l.axis
