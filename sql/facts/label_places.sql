-- label_places: for each expected chunk the one that is meant, where the tables know several of its id: the one
-- that was seen first, so that a chunker that uses old ids again does not change what a label says.
-- columns: chunk_id, chunker_version, doc_id, spans_text (null: none that says anything), raw_text (as stored)
-- kind: table
SELECT chunk_id, chunker_version, doc_id, spans_text, raw_text
FROM (
    SELECT
        chunk_id,
        chunker_version,
        doc_id,
        COALESCE(usable_spans(spans_text), usable_spans(archived_text)) AS spans_text,
        COALESCE(spans_text, archived_text)                             AS raw_text,
        COALESCE(first_seen, '9')                                       AS first_seen
    FROM known_places
    WHERE chunk_id IN (SELECT chunk_id FROM expected_chunks)
)
QUALIFY ROW_NUMBER() OVER (PARTITION BY chunk_id ORDER BY spans_text IS NULL, first_seen, chunker_version) = 1
