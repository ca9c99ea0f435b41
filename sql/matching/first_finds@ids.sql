-- first_finds: as first_finds.sql, where chunk ids decide everywhere.
-- kind: view
SELECT result_no, position, rank, 1 AS n_places FROM id_matches
