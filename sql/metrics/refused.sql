-- refused: questions that were refused.
-- system: grounded
-- grain: per_query
-- where: is_golden
-- missing: include
-- agg:   count
-- better: neither
-- if_empty: 0
CASE WHEN refused THEN 1 ELSE 0 END
