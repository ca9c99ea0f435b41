-- rule_matches: how many answer rules each answer was checked against, and how many it broke.
-- columns: result_no, n_rules, n_rules_broken
-- kind: table
SELECT
    result_no,
    COUNT(*)                                  AS n_rules,
    SUM(CASE WHEN is_kept THEN 0 ELSE 1 END) AS n_rules_broken
FROM rule_checks
GROUP BY result_no
