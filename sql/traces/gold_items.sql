-- gold_items: every line of a gold file, parsed once.
-- columns: id, query, answerable (null: it is neither true nor false), chunks, claims, constraints (none here), has_more
--          (other fields than these), is_odd (it contains an invalid character, or is not strictly JSON)
-- kind: table
--
-- As with traces: this fails if a field is missing, duplicate, or of another type; and the result is checked before it is
-- used.
SELECT
    g.qid                    AS id,
    g.question               AS query,
    CASE CAST(g.answerable AS VARCHAR) WHEN 'true' THEN true WHEN 'false' THEN false END AS answerable,
    g.gold_citations         AS chunks,
    g.gold_claim_substr      AS claims,
    CAST(NULL AS VARCHAR[])  AS constraints,
    len(json_keys(line)) > 5 AS has_more,
    contains(line, '\u0000') OR is_loose(line, 5) AS is_odd
FROM (
    SELECT
        line,
        from_json_strict(line, '{
            "qid": "VARCHAR",
            "question": "VARCHAR",
            "answerable": "JSON",
            "gold_citations": ["VARCHAR"],
            "gold_claim_substr": ["VARCHAR"]
        }') AS g
    FROM gold_lines
)
