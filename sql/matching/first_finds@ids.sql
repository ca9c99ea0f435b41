-- first_finds: as first_finds.sql, if chunk ids decide everywhere.
-- kind: view
SELECT result_no, position, rank, 1 AS n_places FROM id_matches
