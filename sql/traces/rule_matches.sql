-- rule_matches: as sql/matching/rule_matches.sql: none, because no metric of a trace needs them.
-- kind: view
SELECT CAST(0 AS BIGINT) AS result_no, CAST(0 AS BIGINT) AS n_rules, CAST(0 AS BIGINT) AS n_rules_broken WHERE false
