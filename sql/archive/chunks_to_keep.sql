-- chunks_to_keep: rows of the table `chunks` that labels or hits name and that are not kept as they are.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens
-- kind: view
SELECT c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, c.spans_text, c.tokens
FROM chunks AS c
JOIN (
    SELECT chunk_id FROM expected_chunks
    UNION
    SELECT chunk_id FROM hit_chunks
) AS named ON named.chunk_id = c.chunk_id
LEFT JOIN archived_chunks AS a
    ON  a.chunk_id = c.chunk_id
    AND a.chunker_version = c.chunker_version
    AND a.policy_hash = c.policy_hash
WHERE a.chunk_id IS NULL
   OR (
        (
            a.seen_in <> 'chunks'
            OR COALESCE(a.doc_id, '') <> COALESCE(c.doc_id, '')
            OR COALESCE(a.spans_text, '') <> COALESCE(c.spans_text, '')
            OR COALESCE(a.tokens, -1) <> COALESCE(c.tokens, -1)
        )
        -- A place that is known is not forgotten because the table does not know it.
        AND (usable_spans(c.spans_text) IS NOT NULL OR usable_spans(a.spans_text) IS NULL)
   )
