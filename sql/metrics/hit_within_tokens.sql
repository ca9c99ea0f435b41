-- hit_within_tokens: was any expected chunk among the hits that fit into this many tokens of text, taken in rank order?
-- grain: per_query
-- where: n_expected_chunks > 0 AND sizes_known
-- k:     500 1000 2000 4000
-- unit:  tokens
CASE WHEN tokens_to_hit <= :k THEN 1 ELSE 0 END
