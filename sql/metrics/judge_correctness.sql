-- judge_correctness: what the judge gave for correctness, 0 to 5.
-- system: anchors
-- grain: per_query
-- where: in_run AND judge_correctness IS NOT NULL
judge_correctness
