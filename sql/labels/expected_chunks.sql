-- expected_chunks: the chunks that answer a golden query, each once.
-- columns: query_id, chunk_id
-- kind: table
SELECT
    e.id                                    AS query_id,
    UNNEST(different(e.expected_chunk_ids)) AS chunk_id
FROM golden_entries
