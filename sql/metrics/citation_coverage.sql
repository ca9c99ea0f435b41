-- citation_coverage: does the answer cite, and does every citation lead to a real chunk?
-- grain: answered
-- over:  is_golden AND has_answer AND grounded AND NOT failed AND chunks_known
MAX(CASE WHEN n_citations > 0 AND n_citations_resolved = n_citations THEN 1 ELSE 0 END)
