-- scope_miss_rate: how often was no support in a folder that the system chose to search, if it had a choice?
-- labels: gold_supports
-- grain: per_query
-- where: n_supports > 0 AND names_folders
-- better: lower
CASE WHEN in_scope THEN 0 ELSE 1 END
