-- judge_correctness: the judge's score for correctness, 0 to 5: of 'kbeval judge', otherwise of the imported rows.
-- grain: per_query
-- where: in_run AND judge_correctness IS NOT NULL
judge_correctness
