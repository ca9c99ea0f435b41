-- hits_to_keep: as hits_to_keep.sql, if no hit has source_spans.
-- kind: view
SELECT
    CAST(NULL AS VARCHAR) AS chunk_id,
    CAST(NULL AS VARCHAR) AS chunker_version,
    CAST(NULL AS VARCHAR) AS policy_hash,
    CAST(NULL AS VARCHAR) AS doc_id,
    CAST(NULL AS VARCHAR) AS spans_text,
    CAST(NULL AS DOUBLE)  AS tokens
WHERE false
