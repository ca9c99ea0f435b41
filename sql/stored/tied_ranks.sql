-- tied_ranks: every hit of a ranking in which a rank occurs more than once, with the rank that it gets.
-- columns: result_no, position, rank
-- kind: table
-- variants: none, if every rank is the position of its hit in the list
--
-- Such hits are ordered by their stored rank, then by their position in the list, and each takes its stored rank or, if
-- that is taken, the one after the previous hit: 1, 1, 1, 2, 7 become the ranks 1, 2, 3, 4, 7. Usually the rank equals the
-- position, and nothing needs to be counted.
WITH unusual AS (
    SELECT DISTINCT result_no
    FROM parsed_hits
    WHERE rank <> position AND result_no NOT IN (SELECT result_no FROM bad_rows)
),

tied AS (
    SELECT DISTINCT result_no
    FROM (
        SELECT p.result_no
        FROM parsed_hits AS p
        JOIN unusual AS u ON u.result_no = p.result_no
        GROUP BY p.result_no, p.rank
        HAVING COUNT(*) > 1
    )
),

ordered AS (
    SELECT
        p.result_no,
        p.position,
        p.rank,
        ROW_NUMBER() OVER (PARTITION BY p.result_no ORDER BY p.rank, p.position) AS place,
        COUNT(*) OVER (PARTITION BY p.result_no)                                 AS n
    FROM parsed_hits AS p
    JOIN tied AS t ON t.result_no = p.result_no
)

SELECT
    result_no,
    position,
    -- Where ranks are so large that none is free above them, the last hit takes the largest integer.
    CAST(
        LEAST(
            place + MAX(CAST(rank AS HUGEINT) - place) OVER (PARTITION BY result_no ORDER BY place),
            9223372036854775807 - n + place
        ) AS BIGINT
    ) AS rank
FROM ordered
