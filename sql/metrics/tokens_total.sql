-- tokens_total: the total number of tokens used by the system: the rows' `tokens`, otherwise their `usage`.
-- grain: per_query
-- where: in_run AND tokens IS NOT NULL
-- agg:   sum
-- better: lower
tokens
