-- run_matching: as run_matching.sql, if the labels are chunks that every run could hit, or their chunker is unknown:
-- then no hit needs to be read.
-- kind: table
SELECT
    u.run_id,
    u.chunker_version,
    CASE WHEN u.chunker_version IS NOT NULL THEN 'config' END AS version_source,
    u.policy_hash,
    true                                                      AS is_current,
    false                                                     AS is_earlier,
    0                                                         AS n_expected,
    0                                                         AS n_foreign,
    0                                                         AS n_unclear,
    CAST(NULL AS STRING)                                      AS owner,
    false                                                     AS is_nameless,
    CASE WHEN s.match = 'span' THEN 'span' ELSE 'exact' END   AS matching
FROM runs AS u
CROSS JOIN settings AS s
