-- per_query: one row per query of a run, with its labels and its result.
-- kind: table
-- shown: yes
-- columns:
--   result_no, run_id, query_id
--   system                 the system that the rows come from: 'anchors', 'grounded', or null for a knowledge base's own
--   in_run                 the run has a row for it
--   is_counted             false: it has no row, and missing queries do not count as zero
--   is_golden              it is in the golden file; otherwise the columns from should_refuse on are empty
--   failed, elapsed_ms     the row contains an error; the time it took
--   tokens, cost_usd       what answering took; null if the row does not state it
--   timed_out              the error is a timeout
--   n_hits                 number of hits
--   has_answer, grounded, refused
--   flagged                the row itself states whether the system abstained or was grounded
--   is_empty               no error, no text in the answer, and the row does not state that the system refused
--   n_citations, n_citations_resolved, chunks_known (false: there is nothing to resolve them against)
--   should_refuse          true, false, or null if the labels do not say
--   n_expected_chunks (expected_spans, if a query names no chunk; 0 if they cannot be matched), n_expected_docs
--   n_expected_places      the denominator of the share of found chunks; 0 if only the document is known
--   tokens_to_hit          tokens of text up to the first expected chunk, in rank order; null: not found, or unknown
--   sizes_known            the sizes of all hits up to there are known
--   n_rules, n_rules_broken
--   n_supports, n_support_groups
--   supports_complete_rank the rank by which the first group of supports was complete
--   names_folders, in_scope the row states which folders were searched; a support is in one of them
--   has_references, cites_support
--   judge_groundedness, judge_correctness, judge_tokens, judge_cost_usd: of 'kbeval judge', otherwise of the imported row
--   claim_holds            the answer contains a gold claim, or there is none
--   claim_cited            it cites only retrieved chunks, including an expected one; or nothing, if none is expected
--   gold_complete_rank     the rank by which all expected chunks were found
--   category, difficulty, lang, query_group
WITH asked AS (
    SELECT
        result_no, run_id, query_id, true AS in_run, failed, elapsed_ms, n_hits, has_answer, grounded, refused,
        flagged, is_empty, tokens, cost_usd
    FROM results

    UNION ALL
    SELECT result_no, run_id, query_id, false, false, NULL, 0, false, NULL, NULL, false, false, NULL, NULL
    FROM missing_queries
),

resolvable AS (
    SELECT (SELECT COUNT(*) FROM known_chunks) > 0 AND (SELECT COUNT(*) FROM documents) > 0 AS known
)

SELECT
    a.result_no,
    a.run_id,
    a.query_id,
    u.system,
    a.in_run,
    a.in_run OR s.missing_as_zero       AS is_counted,
    q.query_id IS NOT NULL              AS is_golden,
    a.failed,
    COALESCE(n.total_ms, a.elapsed_ms)  AS elapsed_ms,
    a.tokens,
    a.cost_usd,
    o.result_no IS NOT NULL             AS timed_out,
    a.n_hits,
    a.has_answer,
    a.grounded,
    a.refused,
    a.flagged,
    a.is_empty,
    COALESCE(c.n_citations, 0)          AS n_citations,
    COALESCE(c.n_citations_resolved, 0) AS n_citations_resolved,
    k.known                             AS chunks_known,
    q.should_refuse,
    -- A label that names a place instead of a chunk counts the same. One that cannot be matched is not a miss.
    CASE
        WHEN NOT COALESCE(p.is_matchable, true) THEN 0
        ELSE COALESCE(NULLIF(q.n_expected_chunks, 0), q.n_expected_spans, 0)
    END                                 AS n_expected_chunks,
    COALESCE(q.n_expected_docs, 0)      AS n_expected_docs,
    COALESCE(p.n_places, q.n_expected_chunks, 0) AS n_expected_places,
    z.tokens_to_hit,
    COALESCE(z.sizes_known, false)      AS sizes_known,
    COALESCE(ru.n_rules, 0)             AS n_rules,
    COALESCE(ru.n_rules_broken, 0)      AS n_rules_broken,
    COALESCE(q.n_supports, 0)           AS n_supports,
    COALESCE(q.n_support_groups, 0)     AS n_support_groups,
    n.complete_rank                     AS supports_complete_rank,
    COALESCE(n.names_folders, false)    AS names_folders,
    COALESCE(n.in_scope, false)         AS in_scope,
    COALESCE(n.has_references, false)   AS has_references,
    COALESCE(n.cites_support, false)    AS cites_support,
    -- If kbeval judged a run, the scores that came with its rows are those of another judge.
    CASE
        WHEN j.judges_groundedness THEN j.judge_groundedness
        WHEN u.system = 'anchors' THEN n.judge_groundedness
    END                                 AS judge_groundedness,
    CASE
        WHEN j.judges_correctness THEN j.judge_correctness
        WHEN u.system = 'anchors' THEN n.judge_correctness
    END                                 AS judge_correctness,
    CASE
        WHEN j.result_no IS NOT NULL THEN j.judge_tokens
        WHEN u.system = 'anchors' THEN n.judge_tokens
    END                                 AS judge_tokens,
    CASE
        WHEN j.result_no IS NOT NULL THEN j.judge_cost_usd
        WHEN u.system = 'anchors' THEN n.judge_cost_usd
    END                                 AS judge_cost_usd,
    q.n_claims = 0 OR COALESCE(t.n_claims_found, 0) > 0 AS claim_holds,
    CASE
        WHEN q.n_expected_chunks = 0 THEN COALESCE(t.n_cited, 0) = 0
        ELSE COALESCE(t.n_cited_gold, 0) > 0 AND t.n_cited_unseen = 0
    END                                 AS claim_cited,
    CASE WHEN t.n_gold_found = q.n_expected_chunks THEN t.last_gold_rank END AS gold_complete_rank,
    q.category,
    q.difficulty,
    q.lang,
    q.query_group
FROM asked AS a
CROSS JOIN resolvable AS k
CROSS JOIN settings AS s
JOIN runs AS u ON u.run_id = a.run_id
LEFT JOIN queries AS q ON q.query_id = a.query_id
LEFT JOIN timeouts AS o ON o.result_no = a.result_no
LEFT JOIN place_counts AS p ON p.result_no = a.result_no
LEFT JOIN reading_cost AS z ON z.result_no = a.result_no
LEFT JOIN rule_matches AS ru ON ru.result_no = a.result_no
LEFT JOIN citation_matches AS c ON c.result_no = a.result_no
LEFT JOIN anchor_checks AS n ON n.result_no = a.result_no
LEFT JOIN judge_checks AS j ON j.result_no = a.result_no
LEFT JOIN claim_checks AS t ON t.result_no = a.result_no
