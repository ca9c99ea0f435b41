-- sighted_chunks: unplaced chunks that occur in a hit of any stored run, with what one such hit states about them.
-- columns: chunk_id, doc_id, path, spans_text
-- kind: table
--
-- Any of them is sufficient, as long as it is always the same one and states a place. A citation is less reliable than
-- source_spans: it often covers only the first block of the chunk. If the tables have the document of the chunk, a hit in
-- another document is another chunk with this id.
WITH ranked_sightings AS (
    SELECT
        s.chunk_id,
        COALESCE(s.doc_id, d.doc_id) AS doc_id,
        s.path,
        s.spans_text,
        ROW_NUMBER() OVER (
            PARTITION BY s.chunk_id
            ORDER BY
                s.spans_text IS NULL,
                COALESCE(s.doc_id, d.doc_id, s.path) IS NULL,
                s.is_cited,
                s.chunker_version NULLS FIRST,
                s.spans_text,
                COALESCE(s.doc_id, d.doc_id) NULLS LAST,
                s.path NULLS LAST
        ) AS choice
    FROM sightings AS s
    LEFT JOIN doc_paths AS d ON d.path = s.path
    LEFT JOIN label_places AS p ON p.chunk_id = s.chunk_id
    WHERE COALESCE(s.doc_id, d.doc_id, s.path, p.doc_id) = COALESCE(p.doc_id, s.doc_id, d.doc_id, s.path)
       OR COALESCE(s.doc_id, d.doc_id, s.path, p.doc_id) IS NULL
)

SELECT chunk_id, doc_id, path, spans_text
FROM ranked_sightings
WHERE choice = 1
