-- refusal_correctness: of the queries that should be refused, how many were?
-- grain: answered
-- over:  should_refuse AND has_answer
MAX(CASE WHEN refused THEN 1 ELSE 0 END)
