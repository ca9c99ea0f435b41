-- silent_runs: is there anything to guess about the chunkers of runs? One row.
-- columns: n_versions (chunker versions of known chunks), n_runs (those whose configuration does not name its chunker; runs
--          that were imported from other systems have none)
-- kind: view
SELECT
    (SELECT COUNT(DISTINCT chunker_version) FROM known_chunks)                   AS n_versions,
    (SELECT COUNT(*) FROM runs WHERE chunker_version IS NULL AND system IS NULL) AS n_runs
