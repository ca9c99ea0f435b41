-- compare: the rows of `kbeval compare` for any two runs of an exported file, by their ids. An unknown run gives no rows.
-- Hits are matched as in the export, each run by itself. `kbeval sql` does not need it: there `compare` runs the comparison
-- itself, by spans if the chunkers differ.
-- columns: as in compared
-- kind: macro
-- example: SELECT query_id, kind, note FROM compare('2026-03-02-words', '2026-03-03-bm25') WHERE kind <> 'draw' ORDER BY query_id
--
-- Composed from the files of sql/compare/, unchanged. {causes} is, for each part of a configuration that can move a
-- query, MAX(CASE WHEN part = '<part>' THEN '<part> changed' END).
-- The parameters have names that no column in those files has.
CREATE MACRO compare(first_run, second_run) AS TABLE
WITH changes AS (
    SELECT CONCAT_WS(', ', {causes}) AS changed
    FROM (
        SELECT COALESCE(x.part, y.part) AS part
        FROM (SELECT field, part, value_no FROM configurations WHERE run_id = first_run) AS x
        FULL JOIN (SELECT field, part, value_no FROM configurations WHERE run_id = second_run) AS y ON y.field = x.field
        WHERE NOT COALESCE(x.value_no = y.value_no, false)
    ) AS differing
),

comparison AS (
    SELECT
        x.run_id              AS run_a,
        y.run_id              AS run_b,
        x.k                   AS k_a,
        y.k                   AS k_b,
        NULLIF(c.changed, '') AS changed
    FROM run_details AS x
    CROSS JOIN run_details AS y
    CROSS JOIN changes AS c
    WHERE x.run_id = first_run AND y.run_id = second_run
),

pairs AS (
{pairs}
),

moved_places AS (
{moved_places}
),

compared AS (
{compared}
)

SELECT * FROM compared
