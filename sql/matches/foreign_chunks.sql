-- foreign_chunks: for each chunker version that runs were made with, how many expected chunks belong to another.
-- Runs of that version cannot hit them: chunk ids change with the chunker.
-- columns: chunker_version, n_expected, n_foreign, owner (the version that they belong to)
-- kind: view
SELECT
    v.chunker_version,
    COUNT(*) AS n_expected,
    COUNT(CASE WHEN c.chunker_version <> v.chunker_version THEN 1 END) AS n_foreign,
    MAX(CASE WHEN c.chunker_version <> v.chunker_version THEN c.chunker_version END) AS owner
FROM (SELECT DISTINCT chunker_version FROM runs WHERE chunker_version IS NOT NULL) AS v
CROSS JOIN expected_chunks AS e
LEFT JOIN chunks AS c ON c.chunk_id = e.chunk_id
GROUP BY v.chunker_version
