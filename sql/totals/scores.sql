-- scores: the values of query_scores, one row per value.
-- columns: run_id, query_id, metric, k (null: the metric has none), value
-- kind: view
-- shown: yes
--
-- Composed: one branch of {branches} for each metric and k.
{branches}
