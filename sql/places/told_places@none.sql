-- told_places: as told_places.sql, if no id was reused: then no hit needs to be read.
-- kind: view
SELECT '' AS run_id, '' AS chunker_version, '' AS chunk_id, false AS is_as_now WHERE false
