-- parsed: every stored row with its JSON opened once, only the fields that kbeval reads.
-- columns: result_no, run_id, query_id, r (the fields), shape_fault (what is wrong with its shape, or null)
-- kind: table
--
-- from_json gives null, or a structure of nulls, where the JSON has another shape than asked for.
-- That happens in honest rows too (nothing was retrieved, nothing was answered), so only then is
-- the row asked a second time what it really holds.
SELECT
    nextval('result_no') AS result_no,
    run_id,
    query_id,
    r,
    CASE
        WHEN r IS NULL AND NOT json_valid(result_json)
            THEN 'is not valid JSON'
        WHEN r IS NULL
            THEN 'is null, not an object'
        WHEN r.hits_top_k IS NULL AND r.answer IS NULL AND json_type(result_json) <> 'OBJECT'
            THEN 'is ' || lower(json_type(result_json)) || ', not an object'
        WHEN r.hits_top_k IS NULL AND json_type(result_json, '$.hits_top_k') NOT IN ('NULL', 'ARRAY')
            THEN 'hits_top_k is not a list'
        WHEN len(list_filter(r.hits_top_k, lambda h: h.rank IS NULL AND h.chunk_id IS NULL AND h.doc_id IS NULL)) > 0
         AND len(list_filter(json_type(result_json, '$.hits_top_k[*]'), lambda t: t <> 'OBJECT')) > 0
            THEN 'a hit is not an object'
        WHEN r.answer.answer IS NULL AND r.answer.grounded IS NULL
         AND json_type(result_json, '$.answer') NOT IN ('NULL', 'OBJECT')
            THEN 'answer is not an object'
        WHEN left(r.answer.answer, 1) IN ('{', '[', 't', 'f', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
         AND json_type(result_json, '$.answer.answer') <> 'VARCHAR'
            THEN 'answer.answer is not text'
        WHEN r.answer IS NOT NULL AND r.answer.citations IS NULL
         AND json_type(result_json, '$.answer.citations') NOT IN ('NULL', 'ARRAY')
            THEN 'answer.citations is not a list'
        WHEN len(list_filter(r.answer.citations, lambda c: c.citation.path IS NULL AND c.citation.chunk_id IS NULL AND c.chunk_id IS NULL)) > 0
         AND len(list_filter(json_type(result_json, '$.answer.citations[*]'), lambda t: t <> 'OBJECT')) > 0
            THEN 'a citation is not an object'
    END AS shape_fault
FROM (
    SELECT
        CAST(run_id AS VARCHAR)      AS run_id,
        CAST(query_id AS VARCHAR)    AS query_id,
        CAST(result_json AS VARCHAR) AS result_json,
        TRY(from_json(CAST(result_json AS VARCHAR), '{
            "elapsed_ms": "JSON",
            "error": "VARCHAR",
            "abstained": "JSON",
            "hits_top_k": [{
                "rank": "JSON", "chunk_id": "JSON", "doc_id": "JSON", "doc_path": "JSON", "score": "JSON"
            }],
            "answer": {
                "answer": "VARCHAR",
                "grounded": "JSON",
                "citations": [{
                    "chunk_id": "JSON",
                    "citation": {
                        "chunk_id": "JSON", "path": "JSON", "kind": "VARCHAR", "page": "DOUBLE",
                        "start": "DOUBLE", "end": "DOUBLE", "line_start": "DOUBLE", "line_end": "DOUBLE",
                        "start_ms": "DOUBLE", "end_ms": "DOUBLE", "char_start": "DOUBLE", "char_end": "DOUBLE",
                        "x": "DOUBLE", "y": "DOUBLE", "w": "DOUBLE", "h": "DOUBLE"
                    }
                }]
            }
        }')) AS r
    FROM stored_results
)
