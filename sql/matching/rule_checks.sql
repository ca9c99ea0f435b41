-- rule_checks: every answer, checked against every rule of its query.
-- columns: result_no, needle, must_contain (false: forbidden), is_kept
-- kind: view
SELECT
    r.result_no,
    u.needle,
    u.must_contain,
    CONTAINS(a.answer, u.needle) = u.must_contain AS is_kept
FROM results AS r
JOIN answer_rules AS u ON u.query_id = r.query_id
JOIN answers AS a ON a.result_no = r.result_no
