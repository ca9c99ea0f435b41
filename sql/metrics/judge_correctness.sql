-- judge_correctness: what the judge gave for correctness, 0 to 5.
-- system: anchors
-- grain: answered
-- over:  in_run AND judge_correctness IS NOT NULL
MAX(judge_correctness)
