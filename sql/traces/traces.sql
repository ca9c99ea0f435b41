-- traces: every line of a trace file, opened once.
-- columns: query_id, claim, retrieved, cited, is_refusal, is_odd (it holds a character that no text should, or is not strictly JSON)
-- kind: table
--
-- This fails where a field is missing, repeated, or has another type; see traces_with_gaps. It takes a number for
-- text, so what came out is looked at before it is used.
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
