-- label_sizes: the size of expected chunks compared with the hits of each run that share text with them.
-- columns: run_id, n (pairs of a hit and an expected chunk), n_coarse (those whose chunk is at least three times as large as
--          the hit), hit_size, label_size (means over the pairs)
-- kind: view
--
-- A whole page without known characters has no meaningful size.
SELECT
    r.run_id,
    COUNT(*)                                                          AS n,
    COUNT(CASE WHEN o.place_size >= 3 * o.hit_size THEN 1 END)        AS n_coarse,
    SUM(o.hit_size) / COUNT(*)                                        AS hit_size,
    SUM(o.place_size) / COUNT(*)                                      AS label_size
FROM shared_text AS o
JOIN results AS r ON r.result_no = o.result_no
WHERE NOT o.is_span_label
  AND o.place_size < 1000000000000
GROUP BY r.run_id
