-- anchor_checks: the facts that the metrics of the anchor-labelled system need: for its own runs and, if labels name
-- supports, for any run. Other runs have none, whichever runs are scored along with them.
-- columns: result_no, complete_rank, names_folders, in_scope (a support is in a folder that was searched),
--          has_references, cites_support, total_ms, judge_groundedness, judge_correctness, judge_tokens, judge_cost_usd
-- kind: table
-- variants: none, if no run comes from the anchor-labelled system and no label names a support
WITH scoped AS (
    SELECT DISTINCT r.result_no
    FROM results AS r
    JOIN supports AS s ON s.query_id = r.query_id
    JOIN searched_folders AS f ON f.result_no = r.result_no
    WHERE LEFT(s.path, LENGTH(f.prefix)) = f.prefix
),

searched AS (
    SELECT DISTINCT result_no FROM searched_folders
),

referring AS (
    SELECT DISTINCT result_no FROM answer_references
),

attributed AS (
    SELECT DISTINCT r.result_no
    FROM results AS r
    JOIN supports AS s ON s.query_id = r.query_id
    JOIN answer_references AS a ON a.result_no = r.result_no AND a.path = s.path
    WHERE LEFT(a.headings, LENGTH(s.headings)) = s.headings
)

SELECT
    a.result_no,
    c.complete_rank,
    w.result_no IS NOT NULL AS names_folders,
    o.result_no IS NOT NULL AS in_scope,
    e.result_no IS NOT NULL AS has_references,
    t.result_no IS NOT NULL AS cites_support,
    a.total_ms,
    a.judge_groundedness,
    a.judge_correctness,
    a.judge_tokens,
    a.judge_cost_usd
FROM anchor_rows AS a
JOIN results AS r ON r.result_no = a.result_no
JOIN runs AS u ON u.run_id = r.run_id
LEFT JOIN complete_supports AS c ON c.result_no = a.result_no
LEFT JOIN searched AS w ON w.result_no = a.result_no
LEFT JOIN scoped AS o ON o.result_no = a.result_no
LEFT JOIN referring AS e ON e.result_no = a.result_no
LEFT JOIN attributed AS t ON t.result_no = a.result_no
WHERE u.system = 'anchors' OR (SELECT COUNT(*) FROM supports) > 0
