-- guessed_chunkers: runs whose configuration does not name their chunker version, and where it was found instead. Runs
-- that were imported from other systems have none.
-- columns: run_id, chunker_version (null: unknown), version_source ('hits': they all name this one, 'tables': the chunks
--          that the hits name are all of this one; null: unknown)
-- kind: view
SELECT c.run_id, c.chunker_version, c.version_source
FROM run_chunkers AS c
JOIN runs AS u ON u.run_id = c.run_id
WHERE u.chunker_version IS NULL AND u.system IS NULL
