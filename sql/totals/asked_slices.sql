-- asked_slices: which slice each query of a run belongs to, by one field or by several at once; one row per slice if a
-- field is a list.
-- columns: result_no, slice
-- kind: table
--
-- Composed: {values} has one branch per field, with its place among them: from `golden_values`, the golden file, or from
-- `fields`, the stored row. {label} joins the values of one row, and {joins} brings them together.
WITH valued AS (
    {values}
)

SELECT DISTINCT q.result_no, {label} AS slice
FROM per_query AS q
{joins}
