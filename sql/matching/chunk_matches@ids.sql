-- chunk_matches: as chunk_matches.sql, where chunk ids decide everywhere.
-- kind: view
SELECT result_no, position, rank FROM id_matches
