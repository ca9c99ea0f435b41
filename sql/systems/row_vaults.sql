-- row_vaults: the vaults that the references and the hits of a row say they are in.
-- columns: result_no, vault
-- kind: table
SELECT DISTINCT result_no, vault
FROM (
    SELECT result_no, UNNEST(list_transform(reference_list, lambda reference: reference.vault)) AS vault
    FROM anchor_rows
    UNION ALL
    SELECT result_no, UNNEST(list_transform(hits, lambda hit: hit.vault))
    FROM anchor_rows
)
WHERE vault <> ''
