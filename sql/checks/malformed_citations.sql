-- malformed_citations: citations, in answers that count, with an invalid position, so that they resolve to nothing.
-- columns: run_id, query_id, citation_no
-- kind: view
SELECT r.run_id, r.query_id, c.citation_no
FROM cited_places AS c
JOIN results AS r ON r.result_no = c.result_no
WHERE c.is_malformed
