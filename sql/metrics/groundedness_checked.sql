-- groundedness_checked: as groundedness, only over the queries that have a rule to check.
-- grain: per_query
-- where: is_golden AND has_answer AND NOT failed AND n_rules > 0
CASE WHEN n_rules_broken = 0 THEN 1 ELSE 0 END
