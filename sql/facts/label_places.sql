-- label_places: for each expected chunk the one that is meant, where the tables know several of its id: the one
-- that was seen first, so that a chunker that uses old ids again does not change what a label says.
-- columns: chunk_id, chunker_version, doc_id, spans_text, archived_text (as in known_places)
-- kind: table
SELECT chunk_id, chunker_version, doc_id, spans_text, archived_text
FROM known_places
WHERE chunk_id IN (SELECT chunk_id FROM expected_chunks)
QUALIFY ROW_NUMBER() OVER (PARTITION BY chunk_id ORDER BY COALESCE(first_seen, '9'), chunker_version) = 1
