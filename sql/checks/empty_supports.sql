-- empty_supports: golden queries that should be answered, and whose list of supports is given but empty: no metric about
-- supports counts them.
-- columns: query_id
-- kind: view
SELECT e.id AS query_id
FROM golden_entries AS e
JOIN queries AS q ON q.query_id = e.id
WHERE len(e.gold_supports) = 0 AND NOT COALESCE(q.should_refuse, false)
