-- judge_checks: the judgements of each row of the runs that were judged here.
-- columns: result_no, judges_groundedness, judges_correctness (the run was judged by that rubric: scores that came with
--          its rows do not count), judge_groundedness, judge_correctness (null: unscored, or not judged), judge_tokens,
--          judge_cost_usd (null: unknown for one of them)
-- kind: table
-- variants: none, if the database contains no judging
WITH judged_runs AS (
    SELECT
        run_id,
        MAX(CASE WHEN rubric = 'groundedness' THEN 1 ELSE 0 END) = 1 AS judges_groundedness,
        MAX(CASE WHEN rubric = 'correctness' THEN 1 ELSE 0 END) = 1  AS judges_correctness
    FROM judgings
    WHERE is_chosen
    GROUP BY run_id
),

said AS (
    SELECT
        result_no,
        MAX(CASE WHEN rubric = 'groundedness' THEN score END) AS judge_groundedness,
        MAX(CASE WHEN rubric = 'correctness' THEN score END)  AS judge_correctness,
        CASE WHEN COUNT(tokens) = COUNT(*) THEN CAST(SUM(tokens) AS DOUBLE) END AS judge_tokens,
        -- A sum of integers does not depend on the order.
        CASE WHEN COUNT(cost_usd) = COUNT(*)
             THEN CAST(SUM(CAST(FLOOR(cost_usd * 1e12 + 0.5) AS DECIMAL(30, 0))) AS DOUBLE) / 1e12 END AS judge_cost_usd
    FROM judgements
    GROUP BY result_no
)

SELECT
    r.result_no,
    u.judges_groundedness,
    u.judges_correctness,
    s.judge_groundedness,
    s.judge_correctness,
    s.judge_tokens,
    s.judge_cost_usd
FROM judged_runs AS u
JOIN results AS r ON r.run_id = u.run_id
LEFT JOIN said AS s ON s.result_no = r.result_no
