-- foreign_runs: runs that cannot hit most of what is expected by its id, because the labels are of other chunks.
-- columns: run_id, chunker_version, owner (a chunker version that knows some of the labels, or null)
-- kind: view
SELECT r.run_id, r.chunker_version, f.owner
FROM foreign_chunks AS f
JOIN runs AS r ON r.chunker_version = f.chunker_version
WHERE 2 * f.n_foreign > f.n_expected
