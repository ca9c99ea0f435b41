-- query_scores: one row per query, one column per number; null where a metric does not apply.
-- columns: result_no, run_id, query_id, and one for each metric and k, named like "hit_at_k.5"
-- kind: table
-- shown: yes
--
-- Composed from the metric files. {values} is, for each grain that a metric needs, one pass over it:
--     JOIN (SELECT result_no, <expression> AS m0, … FROM <grain> GROUP BY result_no) … USING (result_no)
-- and {choices} keeps each value only where its metric applies:
--     CASE WHEN <where> THEN m0 END AS "hit_at_k.1"
-- A metric of the grain `per_query`, where a query has one row, is an expression over that row and needs no pass:
--     CASE WHEN <where> THEN <expression> END AS "error_rate"
SELECT
    result_no,
    per_query.run_id,
    per_query.query_id,
    {choices}
FROM per_query
{values}
