-- known_paths: the paths that identify a document: those of the table `documents`, and those that labels name.
-- columns: path
-- kind: view
SELECT path FROM doc_paths

UNION
SELECT span ->> '$.path'
FROM (SELECT UNNEST(e.expected_spans) AS span FROM golden_entries)
WHERE span ->> '$.path' IS NOT NULL
