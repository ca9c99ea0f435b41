-- chunks_to_keep: rows of the table `chunks` that labels or hits name and that are not kept in this form yet.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens
-- kind: table
WITH named AS (
    SELECT chunk_id FROM expected_chunks
    UNION
    SELECT chunk_id FROM hit_chunks
),

tabled AS (
    SELECT c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, c.tokens, p.spans_text, p.place_text
    FROM chunks AS c
    JOIN named AS n ON n.chunk_id = c.chunk_id
    LEFT JOIN table_places AS p ON p.spans_text = c.spans_text
),

kept AS (
    SELECT a.chunk_id, a.chunker_version, a.policy_hash, a.doc_id, a.tokens, a.seen_in, p.spans_text, p.place_text
    FROM kept_chunks AS a
    JOIN named AS n ON n.chunk_id = a.chunk_id
    LEFT JOIN table_places AS p ON p.spans_text = a.spans_text
)

SELECT DISTINCT c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, c.spans_text, c.tokens
FROM tabled AS c
-- If the id was at another place before, that row stays unchanged, next to the new one.
LEFT JOIN kept AS a
    ON  a.chunk_id = c.chunk_id
    AND a.chunker_version = c.chunker_version
    AND a.policy_hash = c.policy_hash
    AND NOT stands_elsewhere(c.doc_id, c.place_text, a.doc_id, a.place_text)
WHERE a.chunk_id IS NULL
   OR (
        (
            a.seen_in <> 'chunks'
            OR (a.doc_id IS NULL AND c.doc_id IS NOT NULL)
            OR (a.spans_text IS NULL AND c.spans_text IS NOT NULL)
            OR COALESCE(a.tokens, -1) <> COALESCE(c.tokens, -1)
        )
        -- A known place is kept even if the table no longer has it.
        AND (c.spans_text IS NOT NULL OR a.spans_text IS NULL)
   )
