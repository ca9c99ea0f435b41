-- chunks: the chunks that are in the knowledge base now.
-- columns: chunk_id, doc_id, chunker_version, policy_hash (of the chunker's parameters; '' if the table does not state it),
--          spans_text (as stored; null: there are none, or it is not JSON), tokens (the table's estimate, otherwise a
--          quarter of the characters; null: unknown)
-- kind: table
-- variants: none, if the table is missing or empty
-- shown: yes
SELECT
    shown_text(CAST(chunk_id AS VARCHAR))                                 AS chunk_id,
    NULLIF(shown_text(CAST(doc_id AS VARCHAR)), '')                       AS doc_id,
    shown_text(CAST(chunker_version AS VARCHAR))                          AS chunker_version,
    shown_text(CAST(policy_hash AS VARCHAR))                              AS policy_hash,
    CASE WHEN is_strict_json(CAST(source_spans_json AS VARCHAR))
         THEN NULLIF(CAST(source_spans_json AS VARCHAR), '[]') END        AS spans_text,
    token_number(tokens)                                                  AS tokens
FROM stored_chunks
