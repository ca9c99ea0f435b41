-- known_pool_hits: as placed_pool_hits, if the tables have the place of every chunk that was hit: the rows are not read
-- again.
-- columns: as in placed_pool_hits.sql
-- kind: table
SELECT
    q.query_id,
    t.chunk_id,
    t.chunker_version,
    k.doc_id,
    CAST(NULL AS VARCHAR) AS path,
    k.spans_text,
    t.runs,
    t.best_rank,
    n.run_id
FROM returned_pool_hits AS t
JOIN pool_query_numbers AS q ON q.query_no = t.query_no
JOIN pool_runs AS n ON n.run_no = t.run_no
JOIN pool_chunks AS k ON k.chunk_id = t.chunk_id AND k.chunker_version = t.chunker_version
