-- known_pool_hits: as placed_pool_hits, where the tables have the place of every chunk that was hit: the rows are not read
-- again.
-- columns: as in placed_pool_hits.sql
-- kind: table
WITH returned AS (
    SELECT
        r.query_id,
        h.chunk_id,
        COALESCE(h.chunker_version, u.chunker_version) AS chunker_version,
        bit_or(n.run_bit)         AS runs,
        MIN(h.rank)               AS best_rank,
        MAX(r.run_id)             AS run_id
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    JOIN pool_runs AS n ON n.run_id = r.run_id
    JOIN runs AS u ON u.run_id = r.run_id
    WHERE h.rank <= (SELECT depth FROM pool_settings)
      AND r.query_id IN (SELECT query_id FROM queries)
    GROUP BY r.query_id, h.chunk_id, COALESCE(h.chunker_version, u.chunker_version)
)

SELECT
    t.query_id,
    t.chunk_id,
    t.chunker_version,
    k.doc_id,
    CAST(NULL AS VARCHAR) AS path,
    k.spans_text,
    t.runs,
    t.best_rank,
    t.run_id
FROM returned AS t
JOIN pool_chunks AS k ON k.chunk_id = t.chunk_id AND k.chunker_version = t.chunker_version
