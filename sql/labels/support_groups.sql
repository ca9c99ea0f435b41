-- support_groups: which supports are needed together: all of one group, and any group is sufficient.
-- columns: query_id, group_no (from 0), support_no
-- kind: view
SELECT DISTINCT query_id, group_no, UNNEST(members) AS support_no
FROM (
    SELECT
        e.id                                          AS query_id,
        UNNEST(range(len(e.required_support_groups))) AS group_no,
        UNNEST(e.required_support_groups)             AS members
    FROM golden_entries
)
