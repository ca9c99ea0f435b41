-- foreign_chunks: for each chunker version that runs were made with, how many expected chunks it does not know.
-- Runs of that version cannot hit them: chunk ids change with the chunker.
-- columns: chunker_version, n_expected, n_foreign, owner (a version that knows some of them, or null)
-- kind: view
--
-- A chunk is foreign when only other versions know it, when the chunks of this version are known and it is none of
-- them, or when the label means other text under the same id. Where nothing is known, nothing is said.
WITH versions AS (
    SELECT v.chunker_version, MAX(c.chunk_id) IS NOT NULL AS is_indexed
    FROM (SELECT DISTINCT chunker_version FROM runs WHERE chunker_version IS NOT NULL) AS v
    LEFT JOIN chunks AS c ON c.chunker_version = v.chunker_version
    GROUP BY v.chunker_version
),

known AS (
    SELECT
        v.chunker_version,
        v.is_indexed,
        e.query_id,
        e.chunk_id,
        MAX(
            CASE
                WHEN k.chunk_id IS NULL OR k.chunker_version <> v.chunker_version THEN 0
                WHEN t.chunk_id IS NULL OR t.chunker_version = v.chunker_version THEN 1
                WHEN t.spans_text = COALESCE(k.spans_text, k.archived_text) THEN 1
                ELSE 0
            END
        )                                                                                AS is_own,
        MAX(CASE WHEN k.chunker_version <> v.chunker_version THEN k.chunker_version END) AS owner
    FROM versions AS v
    CROSS JOIN expected_chunks AS e
    LEFT JOIN known_places AS k ON k.chunk_id = e.chunk_id
    LEFT JOIN label_places AS t ON t.chunk_id = e.chunk_id
    GROUP BY v.chunker_version, v.is_indexed, e.query_id, e.chunk_id
)

SELECT
    chunker_version,
    COUNT(*)                                                                           AS n_expected,
    COUNT(CASE WHEN is_own = 0 AND (owner IS NOT NULL OR is_indexed) THEN 1 END)       AS n_foreign,
    MAX(CASE WHEN is_own = 0 THEN owner END)                                           AS owner
FROM known
GROUP BY chunker_version
