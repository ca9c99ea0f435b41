-- regressions: what each run lost compared with the previous run of its suite, as in `kbeval compare`.
-- columns: suite, run_id, created_at, previous_run_id, query_id, query, kind ('regression': no longer found, 'loss': at a
--          worse rank), previous_rank, hit_rank (of the first correct hit, then and now), doc_rank (of the first hit in an
--          expected document now), in_run (false: the run did not ask it), failed, comparable (false: ids of two chunkers
--          were compared, which is known only in a session that matches by spans; or only the document decided before,
--          and a hit is in it now, too)
-- kind: view
-- shown: yes
-- example: SELECT run_id, query_id, query, previous_rank FROM regressions WHERE kind = 'regression' AND comparable ORDER BY run_id, query_id
-- example: SELECT suite, run_id, kind, COUNT(*) AS n FROM regressions GROUP BY suite, run_id, kind ORDER BY suite, run_id, kind
SELECT
    o.suite,
    o.run_id,
    o.created_at,
    o.previous_run_id,
    p.query_id,
    q.query,
    p.kind,
    p.a_hit_rank                AS previous_rank,
    p.b_hit_rank                AS hit_rank,
    p.b_doc_rank                AS doc_rank,
    p.in_b                      AS in_run,
    COALESCE(p.b_failed, false) AS failed,
    (
        p.matching <> 'exact'
        OR COALESCE(m.matching, 'exact') <> 'exact'
        OR NOT COALESCE(o.chunker_changed, false)
    ) AND NOT COALESCE(p.matching = 'doc' AND m.matching <> 'doc' AND p.b_doc_rank IS NOT NULL, false) AS comparable
FROM step_pairs AS p
JOIN run_order AS o ON o.run_id = p.run_b
LEFT JOIN queries AS q ON q.query_id = p.query_id
LEFT JOIN matching AS m ON m.result_no = p.b_result_no
WHERE p.kind IN ('regression', 'loss')
