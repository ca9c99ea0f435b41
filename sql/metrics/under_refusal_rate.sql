-- under_refusal_rate: of the questions that cannot be answered, how many were answered?
-- system: grounded
-- grain: per_query
-- where: should_refuse
-- missing: include
-- if_empty: 0
-- better: lower
CASE WHEN COALESCE(refused, false) THEN 0 ELSE 1 END
