-- vault_names: the vaults that may precede a folder ("personal/Software") if paths have none ("Software/Go.md"), or a path
-- if folders have none.
-- columns: result_no, vault, is_named (something calls it a vault), is_folder (a path begins with it)
-- kind: table
--
-- A folder that is mistaken for a vault would put supports in scope that were never searched. So a name is a vault
--   1. where the golden entry names it under vaults; then no other is one for that query;
--   2. where the entry names none, and a reference or a hit of the run says that it is in that vault;
--   3. where the entry names none, for the first part of a chosen folder ("personal" of "personal/Software"), if no
--      folder that the run chose begins with what a path begins with: the paths of its hits, of its references, and of
--      all supports. Then the run names its folders in another way than its paths.
WITH run_vaults AS (
    SELECT DISTINCT r.run_id, v.vault
    FROM row_vaults AS v
    JOIN results AS r ON r.result_no = v.result_no
),

paths AS (
    SELECT r.run_id, p.path
    FROM (
        SELECT result_no, path FROM hit_anchors
        UNION ALL
        SELECT result_no, path FROM answer_references
    ) AS p
    JOIN results AS r ON r.result_no = p.result_no
    UNION ALL
    SELECT u.run_id, s.path
    FROM runs AS u
    CROSS JOIN supports AS s
),

path_folders AS (
    SELECT DISTINCT run_id, SPLIT_PART(path, '/', 1) AS folder
    FROM paths
    WHERE CONTAINS(path, '/')
),

like_paths AS (
    SELECT DISTINCT f.run_id
    FROM row_folders AS f
    JOIN path_folders AS p ON p.run_id = f.run_id AND p.folder = SPLIT_PART(f.folder, '/', 1)
),

found AS (
    SELECT r.result_no, r.run_id, e.vault, true AS is_named
    FROM results AS r
    JOIN query_vaults AS e ON e.query_id = r.query_id

    UNION ALL
    SELECT r.result_no, r.run_id, v.vault, true
    FROM results AS r
    JOIN run_vaults AS v ON v.run_id = r.run_id
    WHERE r.query_id NOT IN (SELECT query_id FROM query_vaults)

    UNION ALL
    SELECT r.result_no, r.run_id, SPLIT_PART(f.folder, '/', 1), false
    FROM results AS r
    JOIN row_folders AS f ON f.result_no = r.result_no
    WHERE CONTAINS(f.folder, '/')
      AND f.run_id NOT IN (SELECT run_id FROM like_paths)
      AND r.query_id NOT IN (SELECT query_id FROM query_vaults)
)

SELECT f.result_no, f.vault, BOOL_OR(f.is_named) AS is_named, BOOL_OR(p.folder IS NOT NULL) AS is_folder
FROM found AS f
LEFT JOIN path_folders AS p ON p.run_id = f.run_id AND p.folder = f.vault
GROUP BY f.result_no, f.vault
