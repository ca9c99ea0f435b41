-- foreign_runs: runs that cannot hit most of what is expected by its id, because the labels are of other chunks.
-- columns: run_id, chunker_version, owner (a chunker version that knows some of the labels, or null), n_foreign,
--          n_expected, matching (as in run_matching)
-- kind: view
SELECT run_id, chunker_version, owner, n_foreign, n_expected, matching
FROM run_matching
WHERE 2 * n_foreign > n_expected
