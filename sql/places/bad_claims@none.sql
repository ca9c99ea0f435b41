-- bad_claims: as bad_claims.sql, if every row can be read.
-- kind: view
SELECT
    CAST(NULL AS VARCHAR) AS run_id,
    CAST(NULL AS VARCHAR) AS chunk_id,
    CAST(NULL AS VARCHAR) AS doc_id,
    CAST(NULL AS VARCHAR) AS path,
    CAST(NULL AS VARCHAR) AS chunker_version,
    CAST(NULL AS VARCHAR) AS spans_text,
    CAST(NULL AS VARCHAR) AS cited_text
WHERE false
