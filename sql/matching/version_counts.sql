-- version_counts: how many chunkers, policies and labels there are, known without a look at any hit. One row.
-- columns: n_runs_unnamed (runs whose configuration names no chunker), n_versions_named (chunkers that configurations
--          name), n_indexed (chunkers and policies of chunks that are or were in the table `chunks`), n_versions,
--          n_policies (of those and of the runs), n_policies_of_chunks (of all chunks that are known), n_labels
--          (expected chunks), n_labels_unknown (not in the table now), n_chunks_gone (once in it, and not now),
--          n_chunks_moved (in it now for other text than once), n_labels_sighted (labels that kept hits have named)
-- kind: table
WITH indexed AS (
    SELECT chunker_version, policy_hash FROM chunks
    UNION
    SELECT chunker_version, policy_hash FROM kept_chunks WHERE seen_in = 'chunks'
)

SELECT
    (SELECT COUNT(*) FROM runs WHERE chunker_version IS NULL) AS n_runs_unnamed,
    (SELECT COUNT(DISTINCT chunker_version) FROM runs)        AS n_versions_named,
    (SELECT COUNT(*) FROM indexed)                            AS n_indexed,
    (
        SELECT COUNT(DISTINCT chunker_version)
        FROM (SELECT chunker_version FROM indexed UNION SELECT chunker_version FROM runs) AS versions
    )                                                         AS n_versions,
    (
        -- Chunks kept from before policies were known may be another text than those of a policy.
        SELECT COUNT(DISTINCT policy_hash)
        FROM (SELECT policy_hash FROM indexed UNION SELECT NULLIF(policy_hash, '') FROM runs) AS policies
    )                                                         AS n_policies,
    (
        SELECT COUNT(DISTINCT policy_hash)
        FROM (SELECT policy_hash FROM chunks UNION SELECT policy_hash FROM kept_chunks) AS policies
        WHERE policy_hash <> ''
    )                                                         AS n_policies_of_chunks,
    (SELECT COUNT(*) FROM expected_chunks)                    AS n_labels,
    (
        SELECT COUNT(*) FROM expected_chunks WHERE chunk_id NOT IN (SELECT chunk_id FROM chunks)
    )                                                         AS n_labels_unknown,
    (
        SELECT COUNT(*)
        FROM kept_chunks
        WHERE seen_in = 'chunks' AND chunk_id NOT IN (SELECT chunk_id FROM chunks)
    )                                                         AS n_chunks_gone,
    (SELECT COUNT(*) FROM moved_chunks WHERE seen_in = 'chunks') AS n_chunks_moved,
    (
        SELECT COUNT(*)
        FROM kept_chunks
        WHERE seen_in = 'hits' AND chunk_id IN (SELECT chunk_id FROM expected_chunks)
    )                                                         AS n_labels_sighted
