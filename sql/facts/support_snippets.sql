-- support_snippets: words of which a chunk must hold at least one, to be a support.
-- columns: query_id, support_no, snippet (as it is compared)
-- kind: table
SELECT query_id, support_no, folded(UNNEST(snippets)) AS snippet
FROM supports
