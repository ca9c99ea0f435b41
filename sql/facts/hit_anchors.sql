-- hit_anchors: the passage that each hit is.
-- columns: result_no, position, path, headings (canonical), text (as it is compared),
--          is_cut (the stored text is not the whole: what it lacks may be in the rest)
-- kind: table
SELECT
    result_no,
    position,
    COALESCE(hit.rel_path, hit.doc_path)                                   AS path,
    canonical_headings(hit.heading_path)                                   AS headings,
    folded(COALESCE(hit.text, hit.snippet, ''))                            AS text,
    COALESCE(hit.text, hit.snippet) IS NULL
        OR (ends_with(COALESCE(hit.text, hit.snippet), '...')
            AND length(COALESCE(hit.text, hit.snippet)) BETWEEN 200 AND 203) AS is_cut
FROM (
    SELECT result_no, UNNEST(range(1, len(hits) + 1)) AS position, UNNEST(hits) AS hit
    FROM anchor_rows
)
