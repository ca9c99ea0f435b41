-- first_finds: for each hit how many expected chunks, or expected places, it is the first to bring.
-- columns: result_no, position, rank, n_places
-- kind: table
-- variants: ids, where chunk ids decide for every run
WITH found AS (
    SELECT
        result_no,
        position,
        rank,
        ROW_NUMBER() OVER (PARTITION BY result_no, place ORDER BY rank, position) AS find
    FROM found_places
)

SELECT result_no, position, rank, COUNT(*) AS n_places
FROM found
WHERE find = 1
GROUP BY result_no, position, rank
