-- cited_places: one row per citation in an answer, its position as a rectangle on an axis.
-- columns: result_no, citation_no, chunk_id, path, axis (null: only a path), low, high, bottom, top, is_malformed (it
--          names no chunk, and its place is invalid: it ends before it starts, has no end, is not in whole lines, or has an
--          unknown kind)
-- kind: table
-- variants: none, if no answer has a citation
--
-- A path alone, or that of a caption, is a valid citation. A citation with an invalid position is not.
SELECT
    result_no,
    citation_no,
    chunk_id,
    path,
    CASE WHEN is_placed THEN axis END AS axis,
    low,
    high,
    bottom,
    top,
    chunk_id IS NULL AND (path IS NULL OR (NOT is_placed AND says_where(span))) AS is_malformed
FROM (
    SELECT *, is_box(span.kind, axis, low, high, bottom, top, is_counted(span)) AS is_placed
    FROM (
        SELECT
            *,
            span_axis(span.kind, span.page) AS axis,
            span_low(span)                  AS low,
            span_high(span)                 AS high,
            span_bottom(span)               AS bottom,
            span_top(span)                  AS top
        FROM (
            SELECT
                result_no,
                citation_no,
                COALESCE(cited.chunk_id, cited.citation.chunk_id) AS chunk_id,
                cited.citation.path                               AS path,
                numbered_span(cited.citation)                     AS span
            FROM (
                SELECT
                    result_no,
                    UNNEST(range(1, len(r.answer.citations) + 1)) AS citation_no,
                    UNNEST(r.answer.citations)                    AS cited
                FROM parsed
                WHERE result_no IN (SELECT result_no FROM results WHERE grounded AND NOT failed)
            )
        )
    )
)
