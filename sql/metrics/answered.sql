-- answered: questions that were answered, those without a trace included.
-- system: grounded
-- grain: per_query
-- where: is_golden
-- missing: include
-- agg:   count
-- better: neither
-- if_empty: 0
CASE WHEN COALESCE(NOT refused, true) THEN 1 ELSE 0 END
