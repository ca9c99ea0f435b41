-- hit_at_k: was any expected chunk among the first k hits?
-- grain: per_expected_hit
-- where: n_expected_chunks > 0
-- k:     1 3 5 10
-- if_empty: 0
MAX(CASE WHEN is_expected_chunk AND rank <= :k THEN 1 ELSE 0 END)
