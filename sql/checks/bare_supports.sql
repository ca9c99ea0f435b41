-- bare_supports: supports without snippets: every chunk under their headings counts, whatever its text.
-- columns: query_id, support_no (from 0), path, is_whole_file (it names no heading either)
-- kind: view
SELECT query_id, support_no, path, headings = '' AS is_whole_file
FROM supports
WHERE n_snippets = 0
