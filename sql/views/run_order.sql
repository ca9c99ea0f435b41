-- run_order: every run with its position among the runs of its suite, and the previous run.
-- columns: run_id, suite, created_at, run_no (from 1, the oldest first), previous_run_id (null: it is the first),
--          is_dated (false: created_at is not a time; such a run is sorted before all others, which is only a guess),
--          chunker_version, chunker_changed (since the previous run; null: one of them is unknown)
-- kind: view
-- example: SELECT suite, run_no, run_id, created_at FROM run_order ORDER BY suite, run_no
SELECT
    r.run_id,
    r.suite,
    r.created_at,
    ROW_NUMBER() OVER before   AS run_no,
    LAG(r.run_id) OVER before  AS previous_run_id,
    d.is_dated,
    r.chunker_version,
    r.chunker_version <> LAG(r.chunker_version) OVER before AS chunker_changed
FROM runs AS r
JOIN run_details AS d ON d.run_id = r.run_id
WINDOW before AS (PARTITION BY r.suite ORDER BY d.place)
