-- support_snippets: the words of each support, folded as the texts of hits are.
-- columns: query_id, support_no, snippet
-- kind: view
SELECT query_id, support_no, folded(UNNEST(snippets)) AS snippet
FROM supports
