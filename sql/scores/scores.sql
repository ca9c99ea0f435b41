-- scores: the same numbers, one a row.
-- columns: run_id, query_id, metric, k (null: the metric has none), value
-- kind: view
--
-- Composed: one branch of {branches} for each metric and k.
{branches}
