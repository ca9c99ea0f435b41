-- judged_hits: of the pooled ranks of each run, how many hits of a query a label names or a person decided on.
-- columns: run_id, hits (of a query), judged (of these), queries (how many have these two numbers)
-- kind: view
-- A hit without a chunk id counts as judged only if all such texts of its query are.
WITH judged AS (
    SELECT q.query_no, i.chunk_id, i.chunker_version
    FROM pool_groups AS g
    JOIN pool_items AS i ON i.item_no = g.item_no
    JOIN pool_query_numbers AS q ON q.query_id = i.query_id
    LEFT JOIN pool_judged AS j ON j.leader_no = g.leader_no
    GROUP BY q.query_no, i.chunk_id, i.chunker_version
    HAVING BOOL_AND(j.leader_no IS NOT NULL)
),

counted AS (
    SELECT
        r.run_no,
        COUNT(*)          AS hits,
        COUNT(j.query_no) AS judged
    FROM hits AS h
    JOIN pool_results AS r ON r.result_no = h.result_no
    LEFT JOIN judged AS j
        ON  j.query_no = r.query_no
        AND j.chunk_id IS NOT DISTINCT FROM h.chunk_id
        AND j.chunker_version IS NOT DISTINCT FROM COALESCE(h.chunker_version, r.chunker_version)
    WHERE h.rank <= (SELECT depth FROM pool_settings)
    GROUP BY r.run_no, r.result_no
)

SELECT n.run_id, c.hits, c.judged, COUNT(*) AS queries
FROM counted AS c
JOIN pool_runs AS n ON n.run_no = c.run_no
GROUP BY n.run_id, c.hits, c.judged
