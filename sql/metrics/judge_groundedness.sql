-- judge_groundedness: the judge's score for groundedness, 0 to 5: of 'kbeval judge', otherwise of the imported rows.
-- grain: per_query
-- where: in_run AND judge_groundedness IS NOT NULL
judge_groundedness
