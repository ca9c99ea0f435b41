-- pairs: both runs of a comparison side by side, one row per query of either, and how it changed. There may be several
-- comparisons.
-- columns: run_a, run_b, query_id, in_a, in_b, kind (win, draw, loss or regression), matching, a_… and b_… as in sides
-- kind: table
WITH a AS (
    SELECT c.run_a, c.run_b, s.* FROM sides AS s JOIN comparison AS c ON c.run_a = s.run_id
),

b AS (
    SELECT c.run_a, c.run_b, s.* FROM sides AS s JOIN comparison AS c ON c.run_b = s.run_id
)

SELECT
    COALESCE(a.run_a, b.run_a)                 AS run_a,
    COALESCE(a.run_b, b.run_b)                 AS run_b,
    COALESCE(a.query_id, b.query_id)           AS query_id,
    a.query_id IS NOT NULL                     AS in_a,
    b.query_id IS NOT NULL                     AS in_b,
    CASE
        WHEN a.hit_rank IS NULL AND b.hit_rank IS NULL THEN 'draw'
        WHEN a.hit_rank IS NULL                        THEN 'win'
        WHEN b.hit_rank IS NULL                        THEN 'regression'
        WHEN b.hit_rank < a.hit_rank                   THEN 'win'
        WHEN b.hit_rank > a.hit_rank                   THEN 'loss'
        ELSE                                                'draw'
    END                                        AS kind,
    COALESCE(a.matching, b.matching)           AS matching,
    COALESCE(a.should_refuse, b.should_refuse) AS should_refuse,
    a.result_no   AS a_result_no,
    a.hit_rank    AS a_hit_rank,
    a.failed      AS a_failed,
    a.refused     AS a_refused,
    a.keeps_rules AS a_keeps_rules,
    a.cites_well  AS a_cites_well,
    b.result_no   AS b_result_no,
    b.hit_rank    AS b_hit_rank,
    b.doc_rank    AS b_doc_rank,
    b.failed      AS b_failed,
    b.refused     AS b_refused,
    b.keeps_rules AS b_keeps_rules,
    b.cites_well  AS b_cites_well
FROM a
FULL JOIN b ON b.query_id = a.query_id AND b.run_a = a.run_a AND b.run_b = a.run_b
