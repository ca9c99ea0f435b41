-- expected_hits: the hits that some label expects, and which.
-- columns: result_no, position, rank, is_expected_chunk, is_expected_doc
-- kind: table
SELECT
    result_no,
    position,
    rank,
    MAX(by_chunk) = 1 AS is_expected_chunk,
    MAX(by_doc) = 1   AS is_expected_doc
FROM (
    SELECT result_no, position, rank, 1 AS by_chunk, 0 AS by_doc FROM chunk_matches
    UNION ALL
    SELECT result_no, position, rank, 0, 1 FROM doc_matches
) AS matches
GROUP BY result_no, position, rank
