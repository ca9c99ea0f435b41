-- expected_hits: as expected_hits.sql, if chunk ids decide everywhere: then every match is one expected chunk.
-- kind: table
SELECT
    result_no,
    position,
    rank,
    MAX(by_chunk) = 1             AS is_expected_chunk,
    MAX(by_doc) = 1               AS is_expected_doc,
    MAX(by_anchor) = 1            AS is_support,
    CAST(SUM(by_chunk) AS BIGINT) AS n_places
FROM (
    SELECT result_no, position, rank, 1 AS by_chunk, 0 AS by_doc, 0 AS by_anchor FROM chunk_matches
    UNION ALL
    SELECT result_no, position, rank, 0, 1, 0 FROM doc_matches
    UNION ALL
    SELECT result_no, position, rank, 0, 0, 1 FROM support_matches
) AS matches
GROUP BY result_no, position, rank
