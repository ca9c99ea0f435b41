-- over_refusal_rate: of the questions that can be answered, how many were refused?
-- system: grounded
-- grain: per_query
-- where: NOT should_refuse
-- missing: include
-- if_empty: 0
-- better: lower
CASE WHEN COALESCE(refused, false) THEN 1 ELSE 0 END
