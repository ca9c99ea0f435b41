-- run_depths: the depth of the stored hits of each run.
-- columns: run_id, depth (the highest rank of a hit of the run; a run without hits has no row), n_rankings (with hits),
--          is_even (all of them have this depth)
-- kind: table
SELECT run_id, MAX(depth) AS depth, COUNT(*) AS n_rankings, MIN(depth) = MAX(depth) AS is_even
FROM (
    SELECT r.run_id, h.result_no, MAX(h.rank) AS depth
    FROM hits AS h
    JOIN results AS r ON r.result_no = h.result_no
    GROUP BY r.run_id, h.result_no
) AS rankings
GROUP BY run_id
