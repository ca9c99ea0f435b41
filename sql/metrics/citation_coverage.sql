-- citation_coverage: does the answer cite, and does every citation lead to a real chunk?
-- grain: per_query
-- where: is_golden AND has_answer AND grounded AND NOT failed AND chunks_known
CASE WHEN n_citations > 0 AND n_citations_resolved = n_citations THEN 1 ELSE 0 END
