-- gold_items_of_any_shape: as gold_items, for files in which some lines have other fields or other spellings.
-- columns: id, query, answerable, chunks, claims, constraints (null if the line does not have it), names (the fields of
--          the line), is_odd (it contains an invalid character, or is not strictly JSON)
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
