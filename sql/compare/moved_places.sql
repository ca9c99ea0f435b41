-- moved_places: expected places that one run of a comparison found and the other did not.
-- columns: query_id, lost, n_lost (found by A alone: the first of them by name, and how many), gained, n_gained
-- kind: table
WITH found AS (
    SELECT query_id, place, MAX(by_a) AS by_a, MAX(by_b) AS by_b
    FROM (
        SELECT p.query_id, f.place, 1 AS by_a, 0 AS by_b
        FROM pairs AS p
        JOIN found_places AS f ON f.result_no = p.a_result_no

        UNION ALL
        SELECT p.query_id, f.place, 0, 1
        FROM pairs AS p
        JOIN found_places AS f ON f.result_no = p.b_result_no
    ) AS each_side
    GROUP BY query_id, place
)

SELECT
    query_id,
    MIN(CASE WHEN by_b = 0 THEN place END)   AS lost,
    COUNT(CASE WHEN by_b = 0 THEN place END) AS n_lost,
    MIN(CASE WHEN by_a = 0 THEN place END)   AS gained,
    COUNT(CASE WHEN by_a = 0 THEN place END) AS n_gained
FROM found
WHERE by_a <> by_b
GROUP BY query_id
