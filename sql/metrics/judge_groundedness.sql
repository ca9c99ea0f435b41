-- judge_groundedness: what the judge gave for groundedness, 0 to 5.
-- system: anchors
-- grain: answered
-- over:  in_run AND judge_groundedness IS NOT NULL
MAX(judge_groundedness)
