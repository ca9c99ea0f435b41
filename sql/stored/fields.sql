-- fields: one row per query of a run, with everything in its stored row except its hits: the fields that kbeval reads, and
-- all others. The rows are read a second time for it, and only on request.
-- columns: result_no, run_id, query_id, fields (JSON: fields ->> '$.tokens', fields ->> '$.usage.total_tokens')
-- kind: table
-- shown: yes
--
-- If a user-defined metric or a query refers to it, `fields` is also a column of per_query and of the grains that have all
-- of its columns. Rows that cannot be read have none, and neither do rows that were rewritten since the others were read.
SELECT
    r.result_no,
    r.run_id,
    r.query_id,
    json_merge_patch(CAST(s.result_json AS JSON), '{"hits_top_k": null}') AS fields
FROM stored_fields AS s
JOIN results AS r
    ON  r.run_id = CAST(s.run_id AS VARCHAR)
    AND r.query_id = shown_text(CAST(s.query_id AS VARCHAR))
    AND r.row_mark = row_mark(row_hash(s.query_id, s.result_json))
WHERE r.result_no NOT IN (SELECT result_no FROM bad_rows)
