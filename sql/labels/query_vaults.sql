-- query_vaults: the vaults that a golden entry names.
-- columns: query_id, vault
-- kind: table
SELECT e.id AS query_id, UNNEST(e.vaults) AS vault
FROM golden_entries
