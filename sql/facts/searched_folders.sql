-- searched_folders: the folders that the system chose to search; none where the row does not say.
-- columns: result_no, prefix (what the path of everything in the folder begins with)
-- kind: table
SELECT
    result_no,
    CASE WHEN trim(folder, './') = '' THEN '' ELSE trim(folder, '/') || '/' END AS prefix
FROM (SELECT result_no, UNNEST(folders) AS folder FROM anchor_rows)
