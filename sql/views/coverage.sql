-- coverage: which chunks and documents are ever retrieved: all that the knowledge base contains, and hits that it does not
-- contain.
-- columns: what ('chunk' or 'document'), doc_id, chunk_id, chunker_version (both null for a document),
--          known ('now', 'once': only the kept spans have it, 'never'),
--          n_results (rankings that contain it; one that contains it more than once counts once), n_runs, best_rank
-- kind: view
-- shown: yes
-- example: SELECT doc_id, chunk_id FROM coverage WHERE what = 'chunk' AND known = 'now' AND n_results = 0 ORDER BY doc_id, chunk_id
-- example: SELECT doc_id, n_results, n_runs, best_rank FROM coverage WHERE what = 'document' ORDER BY n_results DESC, doc_id
-- example: SELECT chunk_id, chunker_version, n_runs FROM coverage WHERE what = 'chunk' AND known = 'never' ORDER BY n_runs DESC, chunk_id
--
-- An id means a chunk of the run's own chunker version; if that is unknown, of any version that has the id.
WITH known AS (
    SELECT
        k.chunk_id,
        k.chunker_version,
        MIN(k.doc_id)                 AS doc_id,
        MAX(c.chunk_id) IS NOT NULL   AS is_current
    FROM known_chunks AS k
    LEFT JOIN chunks AS c ON c.chunk_id = k.chunk_id AND c.chunker_version = k.chunker_version
    GROUP BY k.chunk_id, k.chunker_version
),

retrieved AS (
    SELECT
        h.chunk_id,
        u.chunker_version,
        MIN(NULLIF(h.doc_id, ''))   AS doc_id,
        COUNT(DISTINCT h.result_no) AS n_results,
        COUNT(DISTINCT r.run_id)    AS n_runs,
        MIN(h.rank)                 AS best_rank
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    JOIN runs AS u ON u.run_id = r.run_id
    WHERE h.chunk_id IS NOT NULL
    GROUP BY h.chunk_id, u.chunker_version
),

retrieved_docs AS (
    SELECT
        COALESCE(NULLIF(h.doc_id, ''), k.doc_id) AS doc_id,
        COUNT(DISTINCT h.result_no)              AS n_results,
        COUNT(DISTINCT r.run_id)                 AS n_runs,
        MIN(h.rank)                              AS best_rank
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    JOIN runs AS u ON u.run_id = r.run_id
    -- A hit that does not name its document is in that of its chunk.
    LEFT JOIN known AS k
        ON  NULLIF(h.doc_id, '') IS NULL
        AND k.chunk_id = h.chunk_id
        AND k.chunker_version = COALESCE(u.chunker_version, k.chunker_version)
    WHERE COALESCE(NULLIF(h.doc_id, ''), k.doc_id) IS NOT NULL
    GROUP BY COALESCE(NULLIF(h.doc_id, ''), k.doc_id)
),

known_docs AS (
    SELECT doc_id, MAX(is_current) AS is_current
    FROM (
        SELECT doc_id, 1 AS is_current FROM documents
        UNION ALL
        SELECT doc_id, CASE WHEN is_current THEN 1 ELSE 0 END FROM known WHERE doc_id IS NOT NULL
    ) AS said
    GROUP BY doc_id
)

SELECT
    'chunk'                                            AS what,
    k.doc_id,
    k.chunk_id,
    k.chunker_version,
    CASE WHEN k.is_current THEN 'now' ELSE 'once' END  AS known,
    CAST(COALESCE(SUM(f.n_results), 0) AS BIGINT)      AS n_results,
    CAST(COALESCE(SUM(f.n_runs), 0) AS BIGINT)         AS n_runs,
    MIN(f.best_rank)                                   AS best_rank
FROM known AS k
LEFT JOIN retrieved AS f
    ON  f.chunk_id = k.chunk_id
    AND k.chunker_version = COALESCE(f.chunker_version, k.chunker_version)
GROUP BY k.doc_id, k.chunk_id, k.chunker_version, k.is_current

UNION ALL
SELECT 'chunk', f.doc_id, f.chunk_id, f.chunker_version, 'never', f.n_results, f.n_runs, f.best_rank
FROM retrieved AS f
LEFT JOIN known AS k
    ON  k.chunk_id = f.chunk_id
    AND k.chunker_version = COALESCE(f.chunker_version, k.chunker_version)
WHERE k.chunk_id IS NULL

UNION ALL
SELECT
    'document',
    COALESCE(d.doc_id, f.doc_id),
    NULL,
    NULL,
    CASE d.is_current WHEN 1 THEN 'now' WHEN 0 THEN 'once' ELSE 'never' END,
    COALESCE(f.n_results, 0),
    COALESCE(f.n_runs, 0),
    f.best_rank
FROM known_docs AS d
FULL JOIN retrieved_docs AS f ON f.doc_id = d.doc_id
