-- judge_groundedness: what the judge gave for groundedness, 0 to 5: in 'kbeval judge', else in the imported rows.
-- grain: per_query
-- where: in_run AND judge_groundedness IS NOT NULL
judge_groundedness
