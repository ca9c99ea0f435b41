-- run_order: every run with its place among the runs of its suite, and the run before it there.
-- columns: run_id, suite, created_at, run_no (from 1, the oldest first), previous_run_id (null: it is the first),
--          chunker_version, chunker_changed (since the run before; null: one of them does not say)
-- kind: view
-- example: SELECT suite, run_no, run_id, created_at FROM run_order ORDER BY suite, run_no
SELECT
    run_id,
    suite,
    created_at,
    ROW_NUMBER() OVER (PARTITION BY suite ORDER BY created_at, run_id) AS run_no,
    LAG(run_id) OVER (PARTITION BY suite ORDER BY created_at, run_id)  AS previous_run_id,
    chunker_version,
    chunker_version <> LAG(chunker_version) OVER (PARTITION BY suite ORDER BY created_at, run_id) AS chunker_changed
FROM runs
