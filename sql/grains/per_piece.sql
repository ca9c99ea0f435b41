-- per_piece: for queries that are labelled by expected_spans, one row per piece of text that a label or a hit covers, with
-- the columns of its query in `per_query`; any other query has one row without size.
-- kind: view
-- columns: all of per_query, and
--   size                   the length of the piece, in the unit of its labels: lines, bytes, characters, time, area
--   rank                   of the first hit that contains it; null: none does
--   is_expected_text       it is part of the expected text
--   is_clear               the text of all hits can be measured
--   is_near_clear          the text of all hits in documents of the labels can be measured
SELECT
    a.*,
    p.size,
    p.rank,
    COALESCE(p.is_expected, false)   AS is_expected_text,
    COALESCE(c.is_clear, false)      AS is_clear,
    COALESCE(c.is_near_clear, false) AS is_near_clear
FROM per_query AS a
LEFT JOIN text_clarity AS c ON c.result_no = a.result_no
LEFT JOIN text_pieces AS p ON p.result_no = a.result_no
