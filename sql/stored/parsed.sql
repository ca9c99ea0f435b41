-- parsed: every stored row with its JSON parsed once, only the fields that kbeval reads.
-- columns: result_no, run_id, query_id, r (the fields), fault (what is wrong with its structure, or null), row_hash,
--          may_hold_text, may_hold_spans (false: certainly no hit has a field `text`, or `source_spans`)
-- kind: table
--
-- from_json is fast and lenient: it returns null, or a structure of nulls, if the JSON has another structure than
-- requested. Valid rows can look like that too (nothing was retrieved, nothing was answered), so only then is the row
-- checked a second time. Fields in which 1.5, "3" or "yes" must not pass are kept as JSON.
SELECT
    result_no,
    run_id,
    query_id,
    r,
    CASE
        -- The source passes this instead of a row that is too large for the memory limit.
        WHEN r IS NULL AND starts_with(result_json, 'too large: ')
            THEN 'is ' || result_json
        WHEN NOT is_named
            THEN 'its query_id is not UTF-8 text'
        WHEN r IS NULL AND NOT json_valid(result_json)
            THEN 'is not valid JSON'
        WHEN loose_fault IS NOT NULL
            THEN loose_fault
        WHEN r IS NULL
            THEN 'is null, not an object'
        WHEN r.hits_top_k IS NULL AND r.answer IS NULL AND json_type(result_json) <> 'OBJECT'
            THEN 'is ' || lower(json_type(result_json)) || ', not an object'
        WHEN r.hits_top_k IS NULL AND json_type(result_json, '$.hits_top_k') NOT IN ('NULL', 'ARRAY')
            THEN 'hits_top_k is not a list'
        WHEN NOT json_is_number(r.elapsed_ms)
            THEN 'elapsed_ms is not a number'
        WHEN NOT json_is_bool(r.abstained) OR said_abstained(r) NOT IN ('true', 'false')
            THEN 'abstained is not true or false'
        WHEN r.answer.answer IS NULL AND r.answer.grounded IS NULL
         AND json_type(result_json, '$.answer') NOT IN ('NULL', 'OBJECT')
            THEN 'answer is not an object'
        WHEN left(r.answer.answer, 1) IN ('{', '[') AND json_type(result_json, '$.answer.answer') <> 'VARCHAR'
            THEN 'answer.answer is not text'
        WHEN NOT json_is_bool(r.answer.grounded)
            THEN 'answer.grounded is not true or false'
        WHEN r.answer IS NOT NULL AND r.answer.citations IS NULL
         AND json_type(result_json, '$.answer.citations') NOT IN ('NULL', 'ARRAY')
            THEN 'answer.citations is not a list'
    END AS fault,
    row_hash,
    -- A name may also be written with escapes. The engine looks for the first character: x is rarer than a quote.
    CASE
        WHEN is_usual
            THEN is_usual_field('text')
        ELSE contains(result_json, 'xt"') OR contains(result_json, '\u00')
    END AS may_hold_text,
    CASE
        WHEN is_usual
            THEN is_usual_field('source_spans')
        ELSE contains(result_json, 'source_spans"') OR contains(result_json, '\u00')
    END AS may_hold_spans
FROM (
    -- Rows that the engine accepts as JSON are checked again, strictly.
    SELECT *, CASE WHEN r IS NOT NULL THEN loose_row_fault(result_json, is_usual) END AS loose_fault
    FROM (
        SELECT *, CASE WHEN r IS NOT NULL THEN has_usual_fields(result_json) END AS is_usual
        FROM (
            SELECT
                CAST(result_no AS BIGINT)    AS result_no,
                CAST(run_id AS VARCHAR)      AS run_id,
                shown_text(CAST(query_id AS VARCHAR)) AS query_id,
                is_text(CAST(query_id AS VARCHAR))    AS is_named,
                CAST(result_json AS VARCHAR) AS result_json,
                row_hash(query_id, result_json) AS row_hash,
                TRY(from_json(CAST(result_json AS VARCHAR), '{
                    "elapsed_ms": "JSON",
                    "error": "VARCHAR",
                    "abstained": "JSON",
                    "abstention": "JSON",
                    "tokens": "JSON", "usage": "JSON", "cost": "JSON", "cost_usd": "JSON",
                    "hits_top_k": [{
                        "rank": "JSON", "chunk_id": "VARCHAR", "doc_id": "VARCHAR", "score": "DOUBLE",
                        "chunker_version": "VARCHAR", "token_count": "DOUBLE"
                    }],
                    "answer": {
                        "answer": "VARCHAR",
                        "grounded": "JSON",
                        "citations": [{
                            "chunk_id": "VARCHAR",
                            "citation": {
                                "chunk_id": "VARCHAR", "path": "VARCHAR", "kind": "VARCHAR", "page": "JSON",
                                "start": "JSON", "end": "JSON", "line_start": "JSON", "line_end": "JSON",
                                "start_ms": "JSON", "end_ms": "JSON", "char_start": "JSON", "char_end": "JSON",
                                "x": "JSON", "y": "JSON", "w": "JSON", "h": "JSON"
                            }
                        }]
                    }
                }')) AS r
            FROM stored_results
        )
    )
)
