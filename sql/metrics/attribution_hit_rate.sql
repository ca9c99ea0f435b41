-- attribution_hit_rate: does the answer refer to a gold support? An empty answer counts as one that does not.
-- labels: gold_supports
-- grain: per_query
-- where: n_supports > 0 AND COALESCE(NOT should_refuse, true) AND (has_answer OR has_references)
CASE WHEN cites_support THEN 1 ELSE 0 END
