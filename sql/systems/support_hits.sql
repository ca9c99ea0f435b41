-- support_hits: which hit is which support: same file, below its heading, with words of it.
-- columns: result_no, position, rank, chunk_id, support_no, is_verified (false: the stored text was cut
--          short, or not kept)
-- kind: table
-- variants: none, if no run is of the anchor-labelled system and no label names a support
WITH near AS (
    SELECT
        r.result_no,
        r.query_id,
        h.position,
        h.rank,
        h.chunk_id,
        s.support_no,
        s.n_snippets,
        a.text,
        a.is_cut
    FROM results AS r
    JOIN supports AS s ON s.query_id = r.query_id
    JOIN hit_anchors AS a ON a.result_no = r.result_no AND a.path = s.path
    JOIN hits AS h ON h.result_no = a.result_no AND h.position = a.position
    WHERE LEFT(a.headings, LENGTH(s.headings)) = s.headings
),

worded AS (
    SELECT DISTINCT n.result_no, n.position, n.support_no
    FROM near AS n
    JOIN support_snippets AS w ON w.query_id = n.query_id AND w.support_no = n.support_no
    WHERE CONTAINS(n.text, w.snippet)
)

SELECT
    n.result_no,
    n.position,
    n.rank,
    n.chunk_id,
    n.support_no,
    n.n_snippets = 0 OR w.result_no IS NOT NULL AS is_verified
FROM near AS n
LEFT JOIN worded AS w ON w.result_no = n.result_no AND w.position = n.position AND w.support_no = n.support_no
WHERE n.n_snippets = 0 OR w.result_no IS NOT NULL OR n.is_cut
