-- pool_candidates: one row per candidate: each text once, whatever the chunker, and the number of runs that returned it.
-- columns: query_id, leader_no (the item that represents it), n_runs, best_rank, is_labelled (a label names it)
-- kind: table
SELECT
    i.query_id,
    g.leader_no,
    CASE WHEN COUNT(*) = 1 THEN MAX(i.n_runs) ELSE COALESCE(bit_count(bit_or(i.runs)), 0) END AS n_runs,
    MIN(i.best_rank)                  AS best_rank,
    COUNT(l.item_no) > 0              AS is_labelled
FROM pool_groups AS g
JOIN pool_items AS i ON i.item_no = g.item_no
LEFT JOIN pool_labelled AS l ON l.item_no = i.item_no
GROUP BY i.query_id, g.leader_no
