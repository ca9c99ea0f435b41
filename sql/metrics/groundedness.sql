-- groundedness: does the answer contain every must_contain string and no forbidden one? An answer without rules passes.
-- grain: per_query
-- where: is_golden AND has_answer AND NOT failed
-- if_empty: 0
CASE WHEN n_rules_broken = 0 THEN 1 ELSE 0 END
