-- judge_correctness: what the judge gave for correctness, 0 to 5: in 'kbeval judge', else in the imported rows.
-- grain: per_query
-- where: in_run AND judge_correctness IS NOT NULL
judge_correctness
