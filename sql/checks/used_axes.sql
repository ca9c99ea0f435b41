-- used_axes: the kinds of position that the hits of each run, and all known chunks, use.
-- columns: run_id, axis ('page' for any page)
-- kind: table
SELECT DISTINCT run_id, CASE WHEN axis LIKE 'page %' THEN 'page' ELSE axis END AS axis
FROM (
    SELECT DISTINCT r.run_id, s.axis
    FROM hit_spans AS s
    JOIN results AS r ON r.result_no = s.result_no

    UNION ALL
    SELECT u.run_id, k.axis
    FROM runs AS u
    CROSS JOIN (SELECT DISTINCT axis FROM chunk_spans) AS k
)
