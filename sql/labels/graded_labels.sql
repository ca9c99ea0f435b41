-- graded_labels: the chunks that were judged for a golden query, each once. An expected chunk without a grade has grade 1.
-- columns: query_id, chunk_id, grade (0: judged as not relevant), is_relevant (it is an expected chunk)
-- kind: table
SELECT
    query_id,
    chunk_id,
    COALESCE(MAX(grade), 1) AS grade,
    MAX(is_expected) = 1    AS is_relevant
FROM (
    SELECT
        e.id                              AS query_id,
        UNNEST(map_keys(e.relevance))     AS chunk_id,
        UNNEST(map_values(e.relevance))   AS grade,
        0                                 AS is_expected
    FROM golden_entries

    UNION ALL
    SELECT query_id, chunk_id, NULL, 1
    FROM expected_chunks
)
GROUP BY query_id, chunk_id
