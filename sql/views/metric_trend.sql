-- metric_trend: how each stored number changed from run to run of a suite.
-- columns: suite, metric, k (null: the metric has none), run_id, created_at, value (null: scored on no query),
--          previous_run_id (the last one before it that has stored numbers), previous_value, change (null: one of the
--          two has no value), scored (queries that the value was computed on),
--          definitions_changed, labels_changed, matching_changed (since that run, so that the numbers are not comparable;
--          null: unknown)
-- kind: view
-- shown: yes
-- example: SELECT created_at, run_id, value, change FROM metric_trend WHERE metric = 'mrr' ORDER BY suite, created_at, run_id
-- example: SELECT suite, run_id, metric, k, change FROM metric_trend WHERE change <> 0 AND NOT COALESCE(labels_changed, false) ORDER BY ABS(change) DESC LIMIT 10
WITH numbers AS (
    SELECT
        o.suite, o.run_no, o.created_at, d.definitions, d.labels, d.matching,
        n.run_id, n.metric, n.k, n.value, n.scored
    FROM aggregates AS n
    JOIN run_order AS o ON o.run_id = n.run_id
    JOIN run_details AS d ON d.run_id = n.run_id
    WHERE n.slice IS NULL
),

with_previous AS (
    SELECT
        numbers.*,
        LAG(run_id) OVER before      AS previous_run_id,
        LAG(value) OVER before       AS previous_value,
        LAG(definitions) OVER before AS previous_definitions,
        LAG(labels) OVER before      AS previous_labels,
        LAG(matching) OVER before    AS previous_matching
    FROM numbers
    WINDOW before AS (PARTITION BY suite, metric, k ORDER BY run_no)
)

SELECT
    suite,
    metric,
    k,
    run_id,
    created_at,
    value,
    previous_run_id,
    previous_value,
    -- Stored numbers have four decimals, and so have their differences.
    (ROUND(value * 10000) - ROUND(previous_value * 10000)) / 10000 AS change,
    scored,
    definitions <> previous_definitions                            AS definitions_changed,
    labels <> previous_labels                                      AS labels_changed,
    matching <> previous_matching                                  AS matching_changed
FROM with_previous
