-- traces_with_gaps: as traces, for files in which some lines lack fields or call their id q_id; takes twice as long.
-- columns: query_id, claim, retrieved, cited (null if the line does not have it), is_refusal, is_odd (a field is duplicate
--          or has the wrong type, or the line contains an invalid character, or is not strictly JSON)
-- kind: table
SELECT
    COALESCE(NULLIF(t.qid, ''), t.q_id) AS query_id,
    t.answer_json.claim             AS claim,
    t.retrieved_ids                 AS retrieved,
    t.answer_json.citations         AS cited,
    is_refusal(t.answer_json.claim) AS is_refusal,
    contains(line, '\u0000')
        OR loose_fault(line) IS NOT NULL
        OR n_different(names) < len(names)
        OR n_different(answer_names) < len(answer_names)
        -- Null counts as missing; any other value that was not read has the wrong type.
        OR (t.retrieved_ids IS NULL         AND COALESCE(json_type(line, '$.retrieved_ids'), 'NULL') <> 'NULL')
        OR (len(answer_names) = 0           AND COALESCE(json_type(line, '$.answer_json'), 'NULL') NOT IN ('NULL', 'OBJECT'))
        OR (t.answer_json.claim IS NULL     AND COALESCE(json_type(line, '$.answer_json.claim'), 'NULL') <> 'NULL')
        OR (t.answer_json.citations IS NULL AND COALESCE(json_type(line, '$.answer_json.citations'), 'NULL') <> 'NULL')
                                    AS is_odd
FROM (
    SELECT
        line,
        json_keys(line)                                AS names,
        COALESCE(json_keys(line, '$.answer_json'), []) AS answer_names,
        from_json(line, '{
            "qid": "VARCHAR",
            "q_id": "VARCHAR",
            "retrieved_ids": ["VARCHAR"],
            "answer_json": {"claim": "VARCHAR", "citations": ["VARCHAR"]}
        }')                                            AS t
    FROM trace_lines
)
