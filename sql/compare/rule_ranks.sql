-- rule_ranks: the rank of the first hit that shares enough text with an expected place, under each overlap rule.
-- columns: result_no, by_smaller, by_expected, by_hit, by_union (null: none does)
-- kind: table
SELECT
    o.result_no,
    MIN(CASE WHEN o.shared >= s.least_overlap * LEAST(o.hit_size, o.place_size) THEN o.rank END)            AS by_smaller,
    MIN(CASE WHEN o.shared >= s.least_overlap * o.place_size THEN o.rank END)                               AS by_expected,
    MIN(CASE WHEN o.shared >= s.least_overlap * o.hit_size THEN o.rank END)                                 AS by_hit,
    MIN(CASE WHEN o.shared >= s.least_overlap * (o.hit_size + o.place_size - o.shared) THEN o.rank END)     AS by_union
FROM shared_text AS o
CROSS JOIN settings AS s
GROUP BY o.result_no
