-- chunks_to_keep: rows of the table `chunks` that labels or hits name and that are not kept as they are.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens
-- kind: view
SELECT DISTINCT
    c.chunk_id, c.chunker_version, c.policy_hash, c.doc_id, usable_spans(c.spans_text) AS spans_text, c.tokens
FROM chunks AS c
JOIN (
    SELECT chunk_id FROM expected_chunks
    UNION
    SELECT chunk_id FROM hit_chunks
) AS named ON named.chunk_id = c.chunk_id
-- Where the id stood elsewhere before, that is another row, and stays as it is.
LEFT JOIN archived_chunks AS a
    ON  a.chunk_id = c.chunk_id
    AND a.chunker_version = c.chunker_version
    AND a.policy_hash = c.policy_hash
    AND NOT stands_elsewhere(c.doc_id, c.spans_text, a.doc_id, a.spans_text)
WHERE a.chunk_id IS NULL
   OR (
        (
            a.seen_in <> 'chunks'
            OR (a.doc_id IS NULL AND c.doc_id IS NOT NULL)
            OR (usable_spans(a.spans_text) IS NULL AND usable_spans(c.spans_text) IS NOT NULL)
            OR COALESCE(a.tokens, -1) <> COALESCE(c.tokens, -1)
        )
        -- A place that is known is not forgotten because the table does not know it.
        AND (usable_spans(c.spans_text) IS NOT NULL OR usable_spans(a.spans_text) IS NULL)
   )
