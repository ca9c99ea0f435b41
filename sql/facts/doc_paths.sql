-- doc_paths: which document a path means: as the table `documents` says, else as hits name it.
-- columns: path, doc_id
-- kind: table
SELECT path, COALESCE(MIN(CASE WHEN is_table THEN doc_id END), MIN(doc_id)) AS doc_id
FROM (
    SELECT path, doc_id, true AS is_table FROM documents
    UNION ALL
    SELECT DISTINCT path, doc_id, false FROM hit_sources WHERE path IS NOT NULL AND doc_id IS NOT NULL
)
GROUP BY path
