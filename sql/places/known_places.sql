-- known_places: the place of a chunk of one chunker version and policy, from the table `chunks` and the kept spans. An id
-- that was reused under one version and policy has a row for each of its places.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (in the table), kept_text, tokens, seen_in
--          (the origin of the kept row: 'chunks' or 'hits'), first_seen (both null: not kept yet), is_in_table
-- kind: table
-- variants: settled, if the table has every kept chunk that it names at the place that was kept
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

-- Chunks of the table whose id was at another place when it was kept.
moved AS (
    SELECT a.chunk_id, a.chunker_version, a.policy_hash, a.doc_id, a.spans_text, a.tokens, a.seen_in, a.first_seen
    FROM kept_chunks AS a
    JOIN tabled AS c
        ON  c.chunk_id = a.chunk_id
        AND c.chunker_version = a.chunker_version
        AND c.policy_hash = a.policy_hash
    LEFT JOIN table_places AS cp ON cp.spans_text = c.spans_text
    LEFT JOIN table_places AS ap ON ap.spans_text = a.spans_text
    WHERE stands_elsewhere(c.doc_id, cp.place_text, a.doc_id, ap.place_text)
),

kept AS (
    SELECT chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens, seen_in, first_seen FROM kept_chunks
    EXCEPT
    SELECT chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens, seen_in, first_seen FROM moved
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

UNION ALL
SELECT chunk_id, chunker_version, policy_hash, doc_id, NULL, spans_text, tokens, seen_in, first_seen, false
FROM moved
