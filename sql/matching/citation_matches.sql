-- citation_matches: how many citations each answer has, and how many lead to a real chunk.
-- columns: result_no, n_citations, n_citations_resolved
-- kind: table
SELECT
    result_no,
    COUNT(*)                                   AS n_citations,
    SUM(CASE WHEN is_real THEN 1 ELSE 0 END) AS n_citations_resolved
FROM citation_checks
GROUP BY result_no
