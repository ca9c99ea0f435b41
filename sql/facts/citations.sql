-- citations: one row a citation in an answer, its position as a rectangle on an axis.
-- columns: result_no, citation_no, chunk_id, doc_id (of the path), axis (null: the path alone), low, high, bottom, top
-- kind: table
SELECT
    c.result_no,
    c.citation_no,
    COALESCE(c.chunk_id, c.citation.chunk_id) AS chunk_id,
    d.doc_id,
    CASE WHEN is_place(c.citation) THEN span_axis(c.citation.kind, c.citation.page) END AS axis,
    span_low(c.citation)                      AS low,
    span_high(c.citation)                     AS high,
    span_bottom(c.citation)                   AS bottom,
    span_top(c.citation)                      AS top
FROM (
    SELECT
        result_no,
        UNNEST(range(1, len(r.answer.citations) + 1)) AS citation_no,
        UNNEST(r.answer.citations, max_depth := 2)
    FROM parsed
    WHERE result_no IN (SELECT result_no FROM results WHERE grounded AND NOT failed)
) AS c
LEFT JOIN documents AS d ON d.path = c.citation.path
