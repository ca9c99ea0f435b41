-- traces_with_gaps: as traces, where not every line has every field, or its id is called q_id; takes twice as long.
-- columns: query_id, claim, retrieved, cited (null where the line does not say), is_refusal, is_odd (a field is written
--          twice or not of its shape, or it holds a character that no text should, or is not strictly JSON)
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
        -- Null is as good as nothing; anything else that was not read is not what it should be.
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
