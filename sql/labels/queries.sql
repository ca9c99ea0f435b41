-- queries: one row per golden query.
-- columns: query_id, query, answerable, should_refuse (null: the labels do not say),
--          n_expected_chunks, n_expected_docs, n_expected_spans, n_supports, n_support_groups, n_claims,
--          lang, difficulty, category, query_group
-- kind: table
-- shown: yes
SELECT
    e.id         AS query_id,
    e.query      AS query,
    e.answerable AS answerable,
    CASE
        WHEN e.answerable IS NOT NULL                                                  THEN NOT e.answerable
        WHEN len(e.expected_doc_ids) > 0                                               THEN false
        WHEN len(e.expected_chunk_ids) > 0 OR len(e.expected_spans) > 0                THEN NULL
        WHEN len(e.expected_doc_ids) = 0                                               THEN true
    END          AS should_refuse,
    n_different(e.expected_chunk_ids)              AS n_expected_chunks,
    n_different(e.expected_doc_ids)                AS n_expected_docs,
    COALESCE(len(e.expected_spans), 0)             AS n_expected_spans,
    COALESCE(len(e.gold_supports), 0)              AS n_supports,
    COALESCE(len(list_filter(e.required_support_groups, lambda g: len(g) > 0)), 0) AS n_support_groups,
    COALESCE(len(e.gold_claim_substr), 0)          AS n_claims,
    e.lang       AS lang,
    e.difficulty AS difficulty,
    e.category   AS category,
    e."group"    AS query_group
FROM golden_entries
