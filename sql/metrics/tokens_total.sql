-- tokens_total: tokens that the system used, in all: the rows' `tokens`, else their `usage`.
-- grain: per_query
-- where: in_run AND tokens IS NOT NULL
-- agg:   sum
-- better: lower
tokens
