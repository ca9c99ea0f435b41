-- traces: every line of a trace file, parsed once.
-- columns: query_id, claim, retrieved, cited, is_refusal, is_odd (it contains an invalid character, or is not strictly
-- JSON)
-- kind: table
--
-- This fails if a field is missing, duplicate, or of another type; see traces_with_gaps. It converts numbers to text, so
-- the result is checked before it is used.
SELECT
    t.qid                          AS query_id,
    t.answer_json.claim            AS claim,
    t.retrieved_ids                AS retrieved,
    t.answer_json.citations        AS cited,
    is_refusal(t.answer_json.claim) AS is_refusal,
    contains(line, '\u0000') OR is_loose(line, CASE WHEN t.answer_json IS NULL THEN 3 ELSE 5 END)
                                   AS is_odd
FROM (
    SELECT
        line,
        from_json_strict(line, '{
            "qid": "VARCHAR",
            "retrieved_ids": ["VARCHAR"],
            "answer_json": {"claim": "VARCHAR", "citations": ["VARCHAR"]}
        }') AS t
    FROM trace_lines
)
