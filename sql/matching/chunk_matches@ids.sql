-- chunk_matches: as chunk_matches.sql, if chunk ids decide everywhere.
-- kind: view
SELECT result_no, position, rank FROM id_matches
