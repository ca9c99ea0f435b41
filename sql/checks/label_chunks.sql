-- label_chunks: each expected chunk, and where it is known from.
-- columns: chunk_id, is_indexed (the table `chunks` has it now), is_known (it was kept when runs were scored, or a hit
--          names it), is_placed (its place is known), chunker_version (one that had it; null: unknown)
-- kind: view
WITH kept AS (
    SELECT chunk_id, MAX(NULLIF(chunker_version, '')) AS chunker_version
    FROM kept_chunks
    GROUP BY chunk_id
),

seen AS (
    SELECT h.chunk_id, MAX(u.chunker_version) AS chunker_version
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    JOIN runs AS u ON u.run_id = r.run_id
    GROUP BY h.chunk_id
)

SELECT
    e.chunk_id,
    c.chunk_id IS NOT NULL                         AS is_indexed,
    k.chunk_id IS NOT NULL OR s.chunk_id IS NOT NULL AS is_known,
    p.chunk_id IS NOT NULL                         AS is_placed,
    COALESCE(k.chunker_version, s.chunker_version) AS chunker_version
FROM (SELECT DISTINCT chunk_id FROM expected_chunks) AS e
LEFT JOIN (SELECT DISTINCT chunk_id FROM chunks) AS c ON c.chunk_id = e.chunk_id
LEFT JOIN kept AS k ON k.chunk_id = e.chunk_id
LEFT JOIN seen AS s ON s.chunk_id = e.chunk_id
LEFT JOIN (
    SELECT chunk_id FROM label_places WHERE spans_text IS NOT NULL
    UNION
    SELECT chunk_id FROM sighted_chunks WHERE spans_text IS NOT NULL
) AS p ON p.chunk_id = e.chunk_id
