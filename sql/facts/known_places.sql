-- known_places: what the table `chunks` and the archive know about where a chunk of one chunker version and policy stood.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (in the table), archived_text, tokens, seen_in
--          (where the archive has it from: 'chunks' or 'hits'), first_seen (both null: not archived yet), is_in_table
-- kind: table
SELECT
    COALESCE(c.chunk_id, a.chunk_id)               AS chunk_id,
    COALESCE(c.chunker_version, a.chunker_version) AS chunker_version,
    COALESCE(c.policy_hash, a.policy_hash)         AS policy_hash,
    COALESCE(c.doc_id, a.doc_id)                   AS doc_id,
    c.spans_text,
    a.spans_text                                   AS archived_text,
    COALESCE(c.tokens, a.tokens)                   AS tokens,
    a.seen_in,
    a.first_seen,
    c.chunk_id IS NOT NULL                         AS is_in_table
FROM (
    -- A table without a key may hold a chunk twice.
    SELECT
        chunk_id,
        chunker_version,
        policy_hash,
        MIN(doc_id)     AS doc_id,
        MIN(spans_text) AS spans_text,
        MIN(tokens)     AS tokens
    FROM chunks
    GROUP BY chunk_id, chunker_version, policy_hash
) AS c
FULL JOIN archived_chunks AS a
    ON  a.chunk_id = c.chunk_id
    AND a.chunker_version = c.chunker_version
    AND a.policy_hash = c.policy_hash
