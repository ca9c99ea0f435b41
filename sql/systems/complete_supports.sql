-- complete_supports: the rank by which the first group of supports was found whole.
-- columns: result_no, complete_rank
-- kind: table
--
-- All supports of one group are needed, any group is sufficient.
WITH groups AS (
    SELECT
        e.id                                          AS query_id,
        UNNEST(range(len(e.required_support_groups))) AS group_no,
        UNNEST(e.required_support_groups)             AS members
    FROM golden_entries
),

grouped AS (
    SELECT DISTINCT query_id, group_no, UNNEST(members) AS support_no FROM groups
),

first_found AS (
    SELECT result_no, support_no, MIN(rank) AS rank
    FROM support_hits
    GROUP BY result_no, support_no
),

sizes AS (
    SELECT query_id, group_no, COUNT(*) AS n
    FROM grouped
    GROUP BY query_id, group_no
),

whole AS (
    SELECT r.result_no, g.group_no, MAX(f.rank) AS rank
    FROM results AS r
    JOIN grouped AS g ON g.query_id = r.query_id
    JOIN first_found AS f ON f.result_no = r.result_no AND f.support_no = g.support_no
    JOIN sizes AS z ON z.query_id = g.query_id AND z.group_no = g.group_no
    GROUP BY r.result_no, g.group_no, z.n
    HAVING COUNT(*) = z.n
)

SELECT result_no, MIN(rank) AS complete_rank
FROM whole
GROUP BY result_no
