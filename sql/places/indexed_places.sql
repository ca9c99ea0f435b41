-- indexed_places: the chunks that are or were in the table `chunks`, and where they were.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (null: not known), tokens, is_in_table (now),
--          age (1: the first of its id that was seen; a chunker may reuse old ids)
-- kind: table
--
-- Places stated only by hits are not included: a run's numbers must not depend on which other runs were scored before it.
SELECT
    p.chunk_id,
    p.chunker_version,
    p.policy_hash,
    p.doc_id,
    COALESCE(t.spans_text, CASE WHEN p.seen_in = 'chunks' THEN k.spans_text END) AS spans_text,
    p.tokens,
    p.is_in_table,
    ROW_NUMBER() OVER (
        PARTITION BY p.chunk_id
        ORDER BY
            COALESCE(p.first_seen, '9'), p.chunker_version, p.policy_hash, p.is_in_table, p.doc_id, p.kept_text
    ) AS age
FROM known_places AS p
LEFT JOIN table_places AS t ON t.spans_text = p.spans_text
LEFT JOIN table_places AS k ON k.spans_text = p.kept_text
WHERE p.is_in_table OR p.seen_in = 'chunks'
