-- citation_recall_at_k: of the questions that can be answered, how many had all gold citations among the first k?
-- system: grounded
-- grain: per_query
-- where: NOT should_refuse
-- missing: include
-- k:     1 3 5 10
-- if_empty: 0
CASE WHEN n_expected_chunks = 0 OR gold_complete_rank <= :k THEN 1 ELSE 0 END
