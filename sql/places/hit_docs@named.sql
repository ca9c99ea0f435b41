-- hit_docs: as hit_docs.sql, if every hit names its document.
-- kind: view
SELECT result_no, position, rank, chunk_id, doc_id, score, chunker_version, token_count
FROM hits
