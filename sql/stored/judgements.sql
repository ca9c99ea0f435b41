-- judgements: one row per answer and rubric: its judgement in the chosen judging of its run.
-- columns: result_no, run_id, query_id, rubric, judging_id, model, score (null: unscored), is_scored, why (it is
--          unscored), reasoning, supported, unsupported (claims as JSON lists; null: the rubric does not ask for them),
--          tokens, cost_usd (null: not known), is_cached (the judgement already existed: it took no tokens and no money
--          here), created_at, input_hash
-- kind: table
-- shown: yes
-- variants: none, if the database contains no judging
--
-- A row that was rewritten since it was judged is another row, and has no judgement.
SELECT
    r.result_no,
    r.run_id,
    r.query_id,
    j.rubric,
    j.judging_id,
    j.model,
    j.score,
    j.is_scored,
    j.why,
    j.reasoning,
    j.supported,
    j.unsupported,
    j.tokens,
    j.cost_usd,
    j.is_cached,
    j.created_at,
    j.input_hash
FROM judged_rows AS j
JOIN results AS r
    ON  r.run_id = j.run_id
    AND r.query_id = j.query_id
    AND CAST(r.row_mark AS STRING) = j.row_mark
