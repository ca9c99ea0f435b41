-- searched_folders: the folders that the system chose to search, in every possible spelling; none if the row does not state
-- them.
-- columns: result_no, prefix (what the path of everything in the folder begins with)
-- kind: table
--
-- Folders may be named with their vault and paths without, or the other way round. For what counts as a vault, see
-- vault_names.
SELECT DISTINCT result_no, CASE WHEN folder = '' THEN '' ELSE folder || '/' END AS prefix
FROM (
    SELECT result_no, folder
    FROM row_folders

    UNION ALL
    SELECT f.result_no, SUBSTR(f.folder, LENGTH(v.vault) + 2)
    FROM row_folders AS f
    JOIN vault_names AS v ON v.result_no = f.result_no AND LEFT(f.folder, LENGTH(v.vault) + 1) = v.vault || '/'

    -- An entire vault, unless a folder has the same name.
    UNION ALL
    SELECT f.result_no, ''
    FROM row_folders AS f
    JOIN vault_names AS v ON v.result_no = f.result_no AND v.vault = f.folder
    WHERE v.is_named AND NOT v.is_folder

    UNION ALL
    SELECT f.result_no, v.vault || '/' || f.folder
    FROM row_folders AS f
    JOIN vault_names AS v ON v.result_no = f.result_no
    WHERE v.is_named AND f.folder <> ''
) AS spelt
