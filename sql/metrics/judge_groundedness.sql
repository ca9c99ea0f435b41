-- judge_groundedness: what the judge gave for groundedness, 0 to 5.
-- system: anchors
-- grain: per_query
-- where: in_run AND judge_groundedness IS NOT NULL
judge_groundedness
