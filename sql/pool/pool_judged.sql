-- pool_judged: the candidates that a label names or a person decided on.
-- columns: leader_no
-- kind: table
SELECT leader_no
FROM pool_candidates
WHERE is_labelled

UNION
SELECT g.leader_no
FROM pool_groups AS g
JOIN pool_items AS i ON i.item_no = g.item_no
WHERE i.text_hash IS NOT NULL
