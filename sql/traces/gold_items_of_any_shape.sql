-- gold_items_of_any_shape: as gold_items, where not every line has just those fields, or in other spellings.
-- columns: id, query, answerable, chunks, claims, constraints (null where the line does not say), names (the fields of
--          the line), is_odd (it holds a character that no text should, or is not strictly JSON)
-- kind: table
SELECT
    COALESCE(g.id, g.qid, g.q_id)                    AS id,
    COALESCE(g.query, g.question)                    AS query,
    CASE CAST(g.answerable AS VARCHAR) WHEN 'true' THEN true WHEN 'false' THEN false END AS answerable,
    COALESCE(g.expected_chunk_ids, g.gold_citations) AS chunks,
    g.gold_claim_substr                              AS claims,
    g.constraints                                    AS constraints,
    json_keys(line)                                  AS names,
    contains(line, '\u0000') OR loose_fault(line) IS NOT NULL AS is_odd
FROM (
    SELECT
        line,
        from_json(line, '{
            "id": "VARCHAR", "qid": "VARCHAR", "q_id": "VARCHAR",
            "query": "VARCHAR", "question": "VARCHAR",
            "answerable": "JSON",
            "expected_chunk_ids": ["VARCHAR"], "gold_citations": ["VARCHAR"],
            "gold_claim_substr": ["VARCHAR"],
            "constraints": ["VARCHAR"]
        }') AS g
    FROM gold_lines
)
