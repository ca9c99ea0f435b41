-- kept_chunks: chunks that earlier scorings saw, and where they were; they outlive the table `chunks`.
-- columns: chunk_id, doc_id, chunker_version, policy_hash, spans_text, tokens, seen_in ('chunks': the table, 'hits': only
--          a stored row), first_seen
-- kind: table
-- variants: none, if nothing has been kept
SELECT
    CAST(chunk_id AS VARCHAR)                      AS chunk_id,
    NULLIF(CAST(doc_id AS VARCHAR), '')            AS doc_id,
    CAST(chunker_version AS VARCHAR)               AS chunker_version,
    CAST(policy_hash AS VARCHAR)                   AS policy_hash,
    NULLIF(CAST(source_spans_json AS VARCHAR), '') AS spans_text,
    token_number(tokens)                           AS tokens,
    CAST(seen_in AS VARCHAR)                       AS seen_in,
    CAST(first_seen AS VARCHAR)                    AS first_seen
FROM stored_kbeval_chunk_spans
