-- first_finds: for each hit, the number of expected chunks or expected places that it is the first to find.
-- columns: result_no, position, rank, n_places
-- kind: table
-- variants: ids, if chunk ids decide for every run
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
