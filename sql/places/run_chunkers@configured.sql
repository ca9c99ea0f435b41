-- run_chunkers: as run_chunkers.sql, if every configuration names its chunker and no version has several policies, or
-- neither hits nor tables name chunkers: then no hit needs to be read.
-- kind: table
SELECT
    u.run_id,
    u.chunker_version,
    CASE WHEN u.chunker_version IS NOT NULL THEN 'config' END AS version_source,
    u.policy_hash                                             AS policy_hash,
    u.chunker_version IN (SELECT chunker_version FROM chunks) AS is_current,
    false                                                     AS is_earlier,
    false                                                     AS names_reused,
    false                                                     AS is_unclear
FROM runs AS u
