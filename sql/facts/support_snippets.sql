-- support_snippets: words of which a chunk must hold at least one, to be a support.
-- columns: query_id, support_no, snippet (as it is compared)
-- kind: table
SELECT query_id, support_no, replace(lower(nfc_normalize(UNNEST(snippets))), 'ς', 'σ') AS snippet
FROM supports
