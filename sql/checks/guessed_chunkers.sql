-- guessed_chunkers: runs whose configuration does not name their chunker version, and where it was found instead. Runs
-- that were imported from other systems have none.
-- columns: run_id, chunker_version (null: unknown), version_source ('hits': they all name this one, 'tables': the chunks
--          that the hits name are all of this one; null: unknown)
-- kind: view
WITH named AS (
    SELECT r.run_id, MIN(c.chunker_version) AS chunker_version
    FROM hit_claims AS c
    JOIN results AS r ON r.result_no = c.result_no
    WHERE c.chunker_version IS NOT NULL
    GROUP BY r.run_id
    HAVING COUNT(DISTINCT c.chunker_version) = 1
),

known AS (
    SELECT r.run_id, MIN(k.chunker_version) AS chunker_version
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    JOIN known_chunks AS k ON k.chunk_id = h.chunk_id
    GROUP BY r.run_id
    HAVING COUNT(DISTINCT k.chunker_version) = 1
)

SELECT
    u.run_id,
    COALESCE(n.chunker_version, k.chunker_version) AS chunker_version,
    CASE
        WHEN n.run_id IS NOT NULL THEN 'hits'
        WHEN k.run_id IS NOT NULL THEN 'tables'
    END                                            AS version_source
FROM runs AS u
LEFT JOIN named AS n ON n.run_id = u.run_id
LEFT JOIN known AS k ON k.run_id = u.run_id
WHERE u.chunker_version IS NULL AND u.system IS NULL
