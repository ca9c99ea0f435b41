-- complete_supports: the rank by which the first group of supports was complete.
-- columns: result_no, complete_rank
-- kind: table
--
-- All supports of one group are needed, any group is sufficient.
WITH first_found AS (
    SELECT result_no, support_no, MIN(rank) AS rank
    FROM support_hits
    GROUP BY result_no, support_no
),

sizes AS (
    SELECT query_id, group_no, COUNT(*) AS n
    FROM support_groups
    GROUP BY query_id, group_no
),

whole AS (
    SELECT r.result_no, g.group_no, MAX(f.rank) AS rank
    FROM results AS r
    JOIN support_groups AS g ON g.query_id = r.query_id
    JOIN first_found AS f ON f.result_no = r.result_no AND f.support_no = g.support_no
    JOIN sizes AS z ON z.query_id = g.query_id AND z.group_no = g.group_no
    GROUP BY r.result_no, g.group_no, z.n
    HAVING COUNT(*) = z.n
)

SELECT result_no, MIN(rank) AS complete_rank
FROM whole
GROUP BY result_no
