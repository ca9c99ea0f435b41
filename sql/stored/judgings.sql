-- judgings: one row per judging of a run and rubric.
-- columns: judging_id, run_id, rubric, judge (the same for judges whose scores are comparable), provider, model, base_url,
--          parameters (JSON), rubric_hash, scale_low, scale_high, options (JSON), n_cut_contexts (answers judged although
--          their context was not what the system saw), created_at, n_wanted, n_judged (answers × rubrics of the whole
--          judging), is_complete, is_chosen (its scores are those of the run: the latest complete one of the rubric, unless
--          another one is requested)
-- kind: table
-- variants: none, if the database contains no judging
WITH counted AS (
    SELECT CAST(judging_id AS VARCHAR) AS judging_id, COUNT(*) AS n_judged
    FROM stored_kbeval_judged
    GROUP BY judging_id
),

judged AS (
    SELECT
        CAST(j.judging_id AS VARCHAR)                       AS judging_id,
        CAST(j.run_id AS VARCHAR)                           AS run_id,
        CAST(j.judge AS VARCHAR)                            AS judge,
        CAST(j.provider AS VARCHAR)                         AS provider,
        CAST(j.model AS VARCHAR)                            AS model,
        CAST(j.base_url AS VARCHAR)                         AS base_url,
        CAST(j.parameters_json AS VARCHAR)                  AS parameters,
        CAST(j.options_json AS VARCHAR)                     AS options,
        COALESCE(TRY_CAST(TRY(CAST(j.options_json AS VARCHAR) ->> '$.cut_contexts') AS BIGINT), 0) AS n_cut_contexts,
        CAST(j.created_at AS VARCHAR)                       AS created_at,
        COALESCE(TRY_CAST(j.n_wanted AS BIGINT), 0)         AS n_wanted,
        COALESCE(c.n_judged, 0)                             AS n_judged,
        UNNEST(TRY(from_json(CAST(j.rubrics_json AS VARCHAR),
            '[{"name": "VARCHAR", "hash": "VARCHAR", "low": "DOUBLE", "high": "DOUBLE"}]'))) AS rubric
    FROM stored_kbeval_judgings AS j
    LEFT JOIN counted AS c ON c.judging_id = CAST(j.judging_id AS VARCHAR)
),

named AS (
    SELECT
        j.*,
        j.n_judged >= j.n_wanted AS is_complete,
        CASE
            WHEN s.judge = '' THEN j.n_judged >= j.n_wanted
            WHEN s.judge = j.judging_id THEN true
            ELSE j.n_judged >= j.n_wanted AND s.judge IN (j.model, j.provider || ':' || j.model)
        END AS is_candidate
    FROM judged AS j
    CROSS JOIN settings AS s
)

SELECT
    judging_id,
    run_id,
    rubric.name AS rubric,
    judge,
    provider,
    model,
    base_url,
    parameters,
    rubric.hash AS rubric_hash,
    rubric.low  AS scale_low,
    rubric.high AS scale_high,
    options,
    n_cut_contexts,
    created_at,
    n_wanted,
    n_judged,
    is_complete,
    is_candidate AND 1 = ROW_NUMBER() OVER (
        PARTITION BY run_id, rubric.name
        ORDER BY is_candidate DESC, created_at DESC, judging_id DESC
    )           AS is_chosen
FROM named
WHERE rubric.name IS NOT NULL
