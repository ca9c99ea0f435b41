-- row_folders: the folders that were chosen according to a row; none if the row does not state them, or if there was no
-- choice: the folder_mode of the row, or else of the run, is off.
-- columns: result_no, run_id, folder ('' is everything)
-- kind: table
SELECT DISTINCT result_no, run_id, COALESCE(folder_name(folder), '') AS folder
FROM (
    SELECT
        a.result_no,
        r.run_id,
        COALESCE(a.folder_mode, u.config ->> '$.folder_mode', '') AS folder_mode,
        UNNEST(a.folders)                                         AS folder
    FROM anchor_rows AS a
    JOIN results AS r ON r.result_no = a.result_no
    JOIN runs AS u ON u.run_id = r.run_id
)
-- In YAML, off is false.
WHERE lower(folder_mode) NOT IN ('off', 'false')
