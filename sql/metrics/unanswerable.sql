-- unanswerable: questions that cannot be answered.
-- system: grounded
-- grain: per_query
-- where: is_golden
-- missing: include
-- agg:   count
-- better: neither
-- if_empty: 0
CASE WHEN should_refuse THEN 1 ELSE 0 END
