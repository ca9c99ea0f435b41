-- nameless_hits: as nameless_hits.sql, if every hit names its chunk.
-- kind: view
SELECT '' AS run_id, 0 AS n_hits, 0 AS n_nameless, '' AS query_id WHERE false
