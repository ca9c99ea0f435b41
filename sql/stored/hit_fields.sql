-- hit_fields: one row per hit, with all of its fields in the stored row. The rows are read a second time for it, and only
-- on request.
-- columns: result_no, run_id, query_id, position, hit_fields (JSON: hit_fields ->> '$.reranker_score')
-- kind: table
--
-- If a user-defined metric or a query refers to it, `hit_fields` is also a column of per_hit and per_expected_hit.
SELECT
    r.result_no,
    r.run_id,
    r.query_id,
    h.position,
    h.hit AS hit_fields
FROM (
    SELECT run_id, query_id, row_mark, UNNEST(range(1, len(hits) + 1)) AS position, UNNEST(hits) AS hit
    FROM (
        SELECT
            CAST(run_id AS VARCHAR)   AS run_id,
            shown_text(CAST(query_id AS VARCHAR)) AS query_id,
            row_mark(row_hash(query_id, result_json)) AS row_mark,
            TRY(from_json(CAST(result_json AS VARCHAR), '{"hits_top_k": ["JSON"]}')).hits_top_k AS hits
        FROM stored_fields
    )
) AS h
JOIN results AS r ON r.run_id = h.run_id AND r.query_id = h.query_id AND r.row_mark = h.row_mark
WHERE r.result_no NOT IN (SELECT result_no FROM bad_rows)
