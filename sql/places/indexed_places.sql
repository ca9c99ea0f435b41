-- indexed_places: the chunks that are or were in the table `chunks`, and where they were.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (null: not known), tokens, is_in_table (now),
--          age (1: the first of its id that was seen; a chunker may use old ids again)
-- kind: table
--
-- What only hits say is not here: a run's numbers must not depend on which other runs were scored before it.
SELECT
    chunk_id,
    chunker_version,
    policy_hash,
    doc_id,
    COALESCE(
        usable_spans(spans_text),
        CASE WHEN seen_in = 'chunks' THEN usable_spans(kept_text) END
    ) AS spans_text,
    tokens,
    is_in_table,
    ROW_NUMBER() OVER (
        PARTITION BY chunk_id
        ORDER BY COALESCE(first_seen, '9'), chunker_version, policy_hash, is_in_table, doc_id, kept_text
    ) AS age
FROM known_places
WHERE is_in_table OR seen_in = 'chunks'
