-- answer_references: the passages that each answer refers to.
-- columns: result_no, path, headings (canonical)
-- kind: table
SELECT result_no, reference.rel_path AS path, canonical_headings(reference.heading_path) AS headings
FROM (SELECT result_no, UNNEST(reference_list) AS reference FROM anchor_rows)
