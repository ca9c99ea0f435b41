-- rule_matches: how many answer rules each answer was held against, and how many it broke.
-- columns: result_no, n_rules, n_rules_broken
-- kind: table
SELECT
    r.result_no,
    COUNT(*) AS n_rules,
    SUM(CASE WHEN CONTAINS(a.answer, u.needle) = u.must_contain THEN 0 ELSE 1 END) AS n_rules_broken
FROM results AS r
JOIN answer_rules AS u ON u.query_id = r.query_id
JOIN answers AS a ON a.result_no = r.result_no
GROUP BY r.result_no
