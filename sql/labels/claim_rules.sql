-- claim_rules: strings of which a claim must contain at least one. Those below five characters prove nothing.
-- columns: query_id, needle (as it is compared)
-- kind: table
SELECT query_id, folded(needle) AS needle
FROM (SELECT e.id AS query_id, UNNEST(e.gold_claim_substr) AS needle FROM golden_entries)
WHERE length(needle) >= 5
