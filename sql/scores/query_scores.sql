-- query_scores: one row a query, one column a number; null where a metric does not apply.
-- columns: result_no, run_id, query_id, and one for each metric and k, named like "hit_at_k.5"
-- kind: table
--
-- Composed from the metric files. {values} is, for each grain that a metric needs, one pass over it:
--     JOIN (SELECT result_no, <expression> AS m0, … FROM <grain> GROUP BY result_no) … USING (result_no)
-- and {choices} keeps each value only where its metric applies:
--     CASE WHEN <over> THEN m0 END AS "hit_at_k.1"
-- A metric of the grain `answered`, where a query has one row, needs no pass: its value is taken from that row.
SELECT
    result_no,
    answered.run_id,
    answered.query_id,
    {choices}
FROM answered
{values}
