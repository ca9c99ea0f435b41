-- citation_matches: as sql/matching/citation_matches.sql: none, because no metric of a trace needs them.
-- kind: view
SELECT CAST(0 AS BIGINT) AS result_no, CAST(0 AS BIGINT) AS n_citations, CAST(0 AS BIGINT) AS n_citations_resolved WHERE false
