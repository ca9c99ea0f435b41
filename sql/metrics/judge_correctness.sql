-- judge_correctness: what the judge gave for correctness, 0 to 5.
-- system: anchors
-- grain: answered
-- over:  in_run
MAX(judge_correctness)
