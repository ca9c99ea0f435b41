-- pool_query_numbers: a number for each query: the pool groups millions of hits, and numbers are grouped faster than names.
-- columns: query_id, query_no
-- kind: table
SELECT query_id, ROW_NUMBER() OVER (ORDER BY query_id) AS query_no
FROM (SELECT DISTINCT query_id FROM queries)
