-- support_groups: which supports belong together: all of one group are needed, any group will do.
-- columns: query_id, group_no, support_no
-- kind: table
SELECT DISTINCT query_id, group_no, UNNEST(members) AS support_no
FROM (
    SELECT
        e.id                                                 AS query_id,
        UNNEST(range(len(e.required_support_groups)))        AS group_no,
        UNNEST(e.required_support_groups)                    AS members
    FROM golden_entries
)
