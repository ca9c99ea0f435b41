-- citation_hit_rate: of the questions that were answered, how many were answerable and correctly cited?
-- system: grounded
-- grain: per_query
-- where: is_golden AND COALESCE(NOT refused, true)
-- missing: include
-- if_empty: 1
CASE WHEN NOT should_refuse AND claim_cited THEN 1 ELSE 0 END
