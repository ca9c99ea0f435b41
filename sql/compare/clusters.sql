-- clusters: which golden queries count as one in a comparison: those of one group; a query without a group by itself.
-- columns: query_id, cluster_id (the first query of the group, by id)
-- kind: table
SELECT
    query_id,
    CASE
        WHEN query_group IS NULL THEN query_id
        ELSE                          MIN(query_id) OVER (PARTITION BY query_group)
    END AS cluster_id
FROM queries
