-- flaky_queries: queries that changed in both directions between the runs of a suite: hit→miss→hit, or miss→hit→miss. A
-- query that was won once, or lost once, and stayed so is not flaky; see `regressions`.
-- columns: suite, query_id, query, n_runs (that asked it), n_hits (that found it), n_failed, n_flips, n_lost (hit→miss),
--          n_won (miss→hit); the last two are at least 1
-- kind: view
-- shown: yes
-- example: SELECT query_id, query, n_flips, n_hits, n_runs FROM flaky_queries ORDER BY n_flips DESC, suite, query_id LIMIT 10
--
-- A flip is between a run and the next one of the suite that asked the query. A failed query is a miss; a run that did not
-- ask it is skipped, and runs of different chunkers are not compared by chunk ids. If only the document decided in one of
-- two runs, and the other has a hit in that document, too, nothing changed.
WITH seen AS (
    SELECT
        o.suite,
        s.query_id,
        s.failed,
        s.hit_rank IS NOT NULL AS is_hit,
        LAG(s.hit_rank IS NOT NULL) OVER before AS was_hit,
        (
            s.matching <> 'exact'
            OR COALESCE(o.chunker_version = LAG(o.chunker_version) OVER before, true)
        ) AND NOT COALESCE(
            CASE WHEN s.matching = 'doc'
                 THEN LAG(s.matching) OVER before <> 'doc' AND LAG(s.doc_rank) OVER before IS NOT NULL
                 ELSE LAG(s.matching) OVER before = 'doc' AND s.doc_rank IS NOT NULL
            END,
            false
        ) AS comparable
    FROM sides AS s
    JOIN run_order AS o ON o.run_id = s.run_id
    WINDOW before AS (PARTITION BY o.suite, s.query_id ORDER BY o.run_no)
),

counts AS (
    SELECT
        suite,
        query_id,
        COUNT(*)                                                          AS n_runs,
        COUNT(CASE WHEN is_hit THEN 1 END)                                AS n_hits,
        COUNT(CASE WHEN failed THEN 1 END)                                AS n_failed,
        COUNT(CASE WHEN comparable AND was_hit AND NOT is_hit THEN 1 END) AS n_lost,
        COUNT(CASE WHEN comparable AND NOT was_hit AND is_hit THEN 1 END) AS n_won
    FROM seen
    GROUP BY suite, query_id
)

SELECT
    c.suite,
    c.query_id,
    q.query,
    c.n_runs,
    c.n_hits,
    c.n_failed,
    c.n_lost + c.n_won AS n_flips,
    c.n_lost,
    c.n_won
FROM counts AS c
LEFT JOIN queries AS q ON q.query_id = c.query_id
WHERE c.n_lost > 0 AND c.n_won > 0
