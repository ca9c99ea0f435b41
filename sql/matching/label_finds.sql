-- label_finds: as label_ranks, with what precedes each label, and its position in the ideal ranking.
-- columns: result_no, place, grade, is_relevant, rank (null: it was not found), is_judgement
--   ideal_rank             its position if all labels were sorted by grade
--   n_relevant_seen        relevant labels found up to this one; only if it was found
--   n_nonrelevant_seen     labels found up to this one that are judged as not relevant; only if it was found
--   n_relevant, n_nonrelevant  relevant labels, and labels that are judged and not relevant, of the query
-- kind: table
SELECT
    result_no,
    place,
    grade,
    is_relevant,
    rank,
    is_judgement,
    ROW_NUMBER() OVER (PARTITION BY result_no ORDER BY grade DESC, place)          AS ideal_rank,
    CASE WHEN rank IS NOT NULL THEN
        SUM(CASE WHEN is_relevant AND rank IS NOT NULL THEN 1 ELSE 0 END)
            OVER (PARTITION BY result_no ORDER BY rank NULLS LAST)
    END                                                                            AS n_relevant_seen,
    CASE WHEN rank IS NOT NULL THEN
        SUM(CASE WHEN NOT is_relevant AND rank IS NOT NULL THEN 1 ELSE 0 END)
            OVER (PARTITION BY result_no ORDER BY rank NULLS LAST)
    END                                                                            AS n_nonrelevant_seen,
    SUM(CASE WHEN is_relevant THEN 1 ELSE 0 END) OVER (PARTITION BY result_no)     AS n_relevant,
    SUM(CASE WHEN is_relevant THEN 0 ELSE 1 END) OVER (PARTITION BY result_no)     AS n_nonrelevant
FROM label_ranks
