-- parsed_hits: one row a stored hit, each field still a piece of JSON.
-- columns: result_no, position (place in the list, from 1), rank, chunk_id, doc_id, doc_path, score
-- kind: view
SELECT
    result_no,
    UNNEST(range(1, len(r.hits_top_k) + 1)) AS position,
    UNNEST(r.hits_top_k, recursive := true)
FROM parsed
