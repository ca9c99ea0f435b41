-- per_label: one row per judged chunk of a query, found or not, with the columns of its query in `per_query`; a query
-- without such labels has one row without grade.
-- kind: view
-- columns: all of per_query, and
--   place                  the chunk's id, or the name of an expected span
--   grade                  how relevant it is; 1 if the label has no grade, 0: judged as not relevant
--   is_relevant            it is an expected chunk
--   rank                   the rank at which it was found; null: not found
--   is_judgement           false: hits are matched by spans, so it is unknown which of the other hits were judged
--   ideal_rank             its position in the ideal ranking: by grade
--   n_relevant_seen, n_nonrelevant_seen  labels found up to this one that are relevant, and that are not
--   n_relevant, n_nonrelevant            such labels of the query, found or not
SELECT
    a.*,
    l.place,
    l.grade,
    COALESCE(l.is_relevant, false)     AS is_relevant,
    l.rank,
    COALESCE(l.is_judgement, NOT a.in_run) AS is_judgement,
    l.ideal_rank,
    l.n_relevant_seen,
    l.n_nonrelevant_seen,
    COALESCE(l.n_relevant, 0)          AS n_relevant,
    COALESCE(l.n_nonrelevant, 0)       AS n_nonrelevant
FROM per_query AS a
LEFT JOIN label_finds AS l ON l.result_no = a.result_no
