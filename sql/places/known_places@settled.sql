-- known_places: as known_places.sql, if no kept chunk is at another place than in the table.
-- kind: table
WITH tabled AS (
    -- A table without a key may contain a chunk more than once.
    SELECT
        chunk_id,
        chunker_version,
        policy_hash,
        MIN(doc_id)     AS doc_id,
        MIN(spans_text) AS spans_text,
        MIN(tokens)     AS tokens
    FROM chunks
    GROUP BY chunk_id, chunker_version, policy_hash
),

kept AS (
    SELECT DISTINCT chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens, seen_in, first_seen
    FROM kept_chunks
)

SELECT
    COALESCE(c.chunk_id, a.chunk_id)               AS chunk_id,
    COALESCE(c.chunker_version, a.chunker_version) AS chunker_version,
    COALESCE(c.policy_hash, a.policy_hash)         AS policy_hash,
    COALESCE(c.doc_id, a.doc_id)                   AS doc_id,
    c.spans_text,
    a.spans_text                                   AS kept_text,
    COALESCE(c.tokens, a.tokens)                   AS tokens,
    a.seen_in,
    a.first_seen,
    c.chunk_id IS NOT NULL                         AS is_in_table
FROM tabled AS c
FULL JOIN kept AS a
    ON  a.chunk_id = c.chunk_id
    AND a.chunker_version = c.chunker_version
    AND a.policy_hash = c.policy_hash
