-- unknown_hits: chunks that hits name and that are neither in the table `chunks` nor among the kept spans.
-- columns: chunk_id, chunker_version
-- kind: table
SELECT h.chunk_id, h.chunker_version
FROM hit_chunks AS h
LEFT JOIN known_places AS k
    ON  k.chunk_id = h.chunk_id
    AND k.chunker_version = COALESCE(h.chunker_version, k.chunker_version)
WHERE k.chunk_id IS NULL
