-- answered: one row a query of a run, with what its labels ask and what came back.
-- kind: table
-- columns:
--   result_no, run_id, query_id
--   in_run                 the run has a row for it (false only where missing queries count as zero)
--   is_golden              the golden file has it; the columns from should_refuse on are empty where not
--   failed, elapsed_ms     the row holds an error; how long it took
--   n_hits                 hits that came back
--   has_answer, grounded, refused
--   n_citations, n_citations_resolved, chunks_known (false: there is nothing to resolve them against)
--   should_refuse          true, false, or null where the labels do not say
--   n_expected_chunks (expected_spans, where a query names no chunk), n_expected_docs
--   n_rules, n_rules_broken
--   category, difficulty, lang, query_group
WITH asked AS (
    SELECT result_no, run_id, query_id, true AS in_run, failed, elapsed_ms, n_hits, has_answer, grounded, refused
    FROM results

    UNION ALL
    SELECT result_no, run_id, query_id, false, false, NULL, 0, false, NULL, NULL
    FROM missing_queries
),

resolvable AS (
    SELECT (SELECT COUNT(*) FROM known_chunks) > 0 AND (SELECT COUNT(*) FROM documents) > 0 AS known
)

SELECT
    a.result_no,
    a.run_id,
    a.query_id,
    a.in_run,
    q.query_id IS NOT NULL              AS is_golden,
    a.failed,
    a.elapsed_ms,
    a.n_hits,
    a.has_answer,
    a.grounded,
    a.refused,
    COALESCE(c.n_citations, 0)          AS n_citations,
    COALESCE(c.n_citations_resolved, 0) AS n_citations_resolved,
    k.known                             AS chunks_known,
    q.should_refuse,
    -- A label that names a place instead of a chunk is as good.
    COALESCE(NULLIF(q.n_expected_chunks, 0), q.n_expected_spans, 0) AS n_expected_chunks,
    COALESCE(q.n_expected_docs, 0)      AS n_expected_docs,
    COALESCE(ru.n_rules, 0)             AS n_rules,
    COALESCE(ru.n_rules_broken, 0)      AS n_rules_broken,
    q.category,
    q.difficulty,
    q.lang,
    q.query_group
FROM asked AS a
CROSS JOIN resolvable AS k
LEFT JOIN queries AS q ON q.query_id = a.query_id
LEFT JOIN rule_matches AS ru ON ru.result_no = a.result_no
LEFT JOIN citation_matches AS c ON c.result_no = a.result_no
