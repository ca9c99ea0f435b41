-- expected_hits: the hits that some label expects, and which.
-- columns: result_no, position, rank, is_expected_chunk, is_expected_doc, is_support,
--          n_places (expected chunks or places that no earlier hit has found)
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

SELECT
    result_no,
    position,
    rank,
    MAX(by_chunk) = 1             AS is_expected_chunk,
    MAX(by_doc) = 1               AS is_expected_doc,
    MAX(by_anchor) = 1            AS is_support,
    CAST(SUM(n_places) AS BIGINT) AS n_places
FROM (
    SELECT result_no, position, rank, 1 AS by_chunk, 0 AS by_doc, 0 AS by_anchor, 0 AS n_places FROM chunk_matches
    UNION ALL
    SELECT result_no, position, rank, 0, 1, 0, 0 FROM doc_matches
    UNION ALL
    SELECT result_no, position, rank, 0, 0, 1, 0 FROM support_matches
    UNION ALL
    SELECT result_no, position, rank, 0, 0, 0, 1 FROM found WHERE find = 1
) AS matches
GROUP BY result_no, position, rank
