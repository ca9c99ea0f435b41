-- unjudged_hits: for the pooled ranks of each run, the number of hits with neither a label nor a decision.
-- columns: run_id, hits, unjudged
-- kind: view
WITH judged AS (
    SELECT DISTINCT i.query_id, i.chunk_id, i.chunker_version
    FROM pool_groups AS g
    JOIN pool_items AS i ON i.item_no = g.item_no
    JOIN pool_judged AS j ON j.leader_no = g.leader_no
)

SELECT
    r.run_id,
    COUNT(*)                                      AS hits,
    COUNT(*) FILTER (WHERE j.query_id IS NULL)    AS unjudged
FROM hits AS h
JOIN results AS r ON r.result_no = h.result_no
JOIN pool_runs AS n ON n.run_id = r.run_id
JOIN runs AS u ON u.run_id = r.run_id
LEFT JOIN judged AS j
    ON  j.query_id = r.query_id
    AND j.chunk_id IS NOT DISTINCT FROM h.chunk_id
    AND j.chunker_version IS NOT DISTINCT FROM COALESCE(h.chunker_version, u.chunker_version)
WHERE h.rank <= (SELECT depth FROM pool_settings)
  AND r.query_id IN (SELECT query_id FROM queries)
GROUP BY r.run_id
