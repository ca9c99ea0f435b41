-- foreign_runs: runs that cannot hit most expected chunks by id, because the labels refer to other chunks.
-- columns: run_id, chunker_version, owner (a chunker version that has some of the labels, or null), n_foreign,
--          n_expected, matching (as in run_matching)
-- kind: view
SELECT run_id, chunker_version, owner, n_foreign, n_expected, matching
FROM run_matching
WHERE 2 * n_foreign > n_expected
