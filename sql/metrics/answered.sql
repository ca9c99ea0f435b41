-- answered: questions that were answered, including those without a trace.
-- system: grounded
-- grain: per_query
-- where: is_golden
-- missing: include
-- agg:   count
-- better: neither
-- if_empty: 0
CASE WHEN COALESCE(NOT refused, true) THEN 1 ELSE 0 END
