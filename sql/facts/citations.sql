-- citations: one row a citation in an answer, its position as a rectangle on an axis.
-- columns: result_no, citation_no, chunk_id, path, doc_id, axis (null: the path alone), low, high, bottom, top
-- kind: table
--
-- The path leads to its document through the table of documents. Where there is no such table, the
-- hits of the same answer know both.
WITH positions AS (
    SELECT
        result_no,
        citation_no,
        json_text(COALESCE(chunk_id, citation.chunk_id)) AS chunk_id,
        json_text(citation.path)                         AS path,
        span_axis(citation.kind, citation.page)          AS axis,
        span_low(citation)                               AS low,
        span_high(citation)                              AS high,
        span_bottom(citation)                            AS bottom,
        span_top(citation)                               AS top
    FROM parsed_citations
    WHERE result_no NOT IN (SELECT result_no FROM results WHERE failed)
),

paths_in_hits AS (
    SELECT result_no, doc_path, MIN(doc_id) AS doc_id
    FROM hits
    WHERE NOT EXISTS (SELECT 1 FROM documents)
    GROUP BY result_no, doc_path
)

SELECT
    p.result_no,
    p.citation_no,
    p.chunk_id,
    p.path,
    COALESCE(d.doc_id, h.doc_id) AS doc_id,
    CASE WHEN p.high > p.low AND p.top > p.bottom THEN p.axis END AS axis,
    p.low,
    p.high,
    p.bottom,
    p.top
FROM positions AS p
LEFT JOIN documents AS d ON d.path = p.path
LEFT JOIN paths_in_hits AS h ON h.result_no = p.result_no AND h.doc_path = p.path
