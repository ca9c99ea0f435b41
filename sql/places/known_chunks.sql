-- known_chunks: every chunk that exists or existed: the table `chunks`, and what was kept from it.
-- columns: chunk_id, doc_id, chunker_version, policy_hash, spans_text, tokens, is_current (the table contains it now)
-- kind: table
SELECT chunk_id, doc_id, chunker_version, policy_hash, spans_text, tokens, true AS is_current
FROM chunks

UNION ALL
SELECT a.chunk_id, a.doc_id, a.chunker_version, a.policy_hash, a.spans_text, a.tokens, false
FROM kept_chunks AS a
LEFT JOIN chunks AS c
    ON  c.chunk_id = a.chunk_id
    AND c.chunker_version = a.chunker_version
    AND c.policy_hash = a.policy_hash
WHERE a.seen_in = 'chunks' AND c.chunk_id IS NULL

UNION ALL
SELECT chunk_id, doc_id, chunker_version, policy_hash, spans_text, tokens, false
FROM moved_chunks
WHERE seen_in = 'chunks'
