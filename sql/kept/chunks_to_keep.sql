-- chunks_to_keep: rows of the table `chunks` that labels or hits name and that are not kept as they are.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens
-- kind: table
WITH named AS (
    SELECT chunk_id FROM expected_chunks
    UNION
    SELECT chunk_id FROM hit_chunks
),

tabled AS (
    SELECT
        c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, c.tokens,
        c.spans_text, usable_spans(c.spans_text) AS usable
    FROM chunks AS c
    JOIN named AS n ON n.chunk_id = c.chunk_id
),

kept AS (
    SELECT
        a.chunk_id, a.chunker_version, a.policy_hash, a.doc_id, a.tokens, a.seen_in,
        a.spans_text, usable_spans(a.spans_text) AS usable
    FROM kept_chunks AS a
    JOIN named AS n ON n.chunk_id = a.chunk_id
)

SELECT DISTINCT c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, c.usable AS spans_text, c.tokens
FROM tabled AS c
-- If the id was at another place before, that is another row, and stays as it is.
LEFT JOIN kept AS a
    ON  a.chunk_id = c.chunk_id
    AND a.chunker_version = c.chunker_version
    AND a.policy_hash = c.policy_hash
    AND NOT stands_elsewhere(c.doc_id, c.spans_text, a.doc_id, a.spans_text)
WHERE a.chunk_id IS NULL
   OR (
        (
            a.seen_in <> 'chunks'
            OR (a.doc_id IS NULL AND c.doc_id IS NOT NULL)
            OR (a.usable IS NULL AND c.usable IS NOT NULL)
            OR COALESCE(a.tokens, -1) <> COALESCE(c.tokens, -1)
        )
        -- A known place is not forgotten because the table no longer has it.
        AND (c.usable IS NOT NULL OR a.usable IS NULL)
   )
