-- hit_anchors: the passage of each hit.
-- columns: result_no, position, path, headings (canonical), text (as it is compared),
--          is_cut (the stored text is incomplete: what is missing may be in the rest)
-- kind: table
--
-- Stored texts are cut at 200 characters, followed by three dots. A text that was not kept at all also counts as cut.
SELECT
    result_no,
    position,
    COALESCE(hit.rel_path, hit.doc_path) AS path,
    canonical_headings(hit.heading_path) AS headings,
    folded(COALESCE(text, ''))           AS text,
    text IS NULL OR (ends_with(text, '...') AND length(text) BETWEEN 200 AND 203) AS is_cut
FROM (
    SELECT result_no, position, hit, COALESCE(kept_text(hit.text), kept_text(hit.snippet)) AS text
    FROM (
        SELECT result_no, UNNEST(range(1, len(hits) + 1)) AS position, UNNEST(hits) AS hit
        FROM anchor_rows
    )
)
