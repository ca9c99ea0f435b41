-- refusal_correctness: of the queries that should be refused, how many were?
-- grain: per_query
-- where: should_refuse AND has_answer
CASE WHEN refused THEN 1 ELSE 0 END
