-- cited_places: one row per citation in an answer, its position as a rectangle on an axis.
-- columns: result_no, citation_no, chunk_id, path, axis (null: the path alone), low, high, bottom, top, is_malformed (it
--          names no chunk, and its place is invalid: it ends before it starts, lacks an end, or is of an unknown kind)
-- kind: table
--
-- A path alone, or that of a caption, is a fine citation. One that says where in the document, and says it wrong, is not.
SELECT
    result_no,
    citation_no,
    COALESCE(chunk_id, citation.chunk_id) AS chunk_id,
    citation.path                         AS path,
    CASE WHEN is_place(citation) THEN span_axis(citation.kind, citation.page) END AS axis,
    span_low(citation)                    AS low,
    span_high(citation)                   AS high,
    span_bottom(citation)                 AS bottom,
    span_top(citation)                    AS top,
    COALESCE(chunk_id, citation.chunk_id) IS NULL
        AND (citation.path IS NULL OR (NOT is_place(citation) AND says_where(citation))) AS is_malformed
FROM (
    SELECT
        result_no,
        UNNEST(range(1, len(r.answer.citations) + 1)) AS citation_no,
        UNNEST(r.answer.citations, max_depth := 2)
    FROM parsed
    WHERE result_no IN (SELECT result_no FROM results WHERE grounded AND NOT failed)
)
