-- version_counts: the number of chunkers, policies, labels and sizes, known without reading any hit. One row per count.
-- columns: name (one of those below), n
-- kind: view
WITH indexed AS (
    SELECT chunker_version, policy_hash FROM chunks
    UNION
    SELECT chunker_version, policy_hash FROM kept_chunks WHERE seen_in = 'chunks'
)

-- Runs whose configuration does not name a chunker, and chunkers that configurations name.
SELECT 'n_runs_unnamed' AS name, COUNT(*) AS n FROM runs WHERE chunker_version IS NULL
UNION ALL
SELECT 'n_versions_named', COUNT(DISTINCT chunker_version) FROM runs

-- Chunkers and policies of chunks that are or were in the table `chunks`.
UNION ALL
SELECT 'n_indexed', COUNT(*) FROM indexed

-- The same, including those of the runs.
UNION ALL
SELECT 'n_versions', COUNT(DISTINCT chunker_version)
FROM (SELECT chunker_version FROM indexed UNION ALL SELECT chunker_version FROM runs) AS versions

-- Likewise. Chunks kept before policies were known may have other text than those of a policy.
UNION ALL
SELECT 'n_policies', COUNT(DISTINCT policy_hash)
FROM (SELECT policy_hash FROM indexed UNION ALL SELECT NULLIF(policy_hash, '') FROM runs) AS policies

-- The same for all known chunks.
UNION ALL
SELECT 'n_policies_of_chunks', COUNT(DISTINCT policy_hash)
FROM (SELECT policy_hash FROM chunks UNION ALL SELECT policy_hash FROM kept_chunks) AS policies
WHERE policy_hash <> ''

-- Chunks whose number of tokens is known.
UNION ALL
SELECT 'n_sizes', COUNT(tokens)
FROM (SELECT tokens FROM chunks UNION ALL SELECT tokens FROM kept_chunks) AS sizes

-- Expected chunks, and those that are not in the table now.
UNION ALL
SELECT 'n_labels', COUNT(*) FROM expected_chunks
UNION ALL
SELECT 'n_labels_unknown', COUNT(*) FROM expected_chunks WHERE chunk_id NOT IN (SELECT chunk_id FROM chunks)

-- Chunks that were once in the table and no longer are; those that are in it with other text than before; and labels that
-- kept hits have named.
UNION ALL
SELECT 'n_chunks_gone', COUNT(*)
FROM kept_chunks
WHERE seen_in = 'chunks' AND chunk_id NOT IN (SELECT chunk_id FROM chunks)
UNION ALL
SELECT 'n_chunks_moved', COUNT(*) FROM moved_chunks WHERE seen_in = 'chunks'
UNION ALL
SELECT 'n_labels_sighted', COUNT(*)
FROM kept_chunks
WHERE seen_in = 'hits' AND chunk_id IN (SELECT chunk_id FROM expected_chunks)
