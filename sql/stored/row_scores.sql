-- row_scores: one row per score that came with a stored row: from another tool, or from the user's own judge. The rows are
-- read a second time for it, and only if the configuration of a run lists such scores.
-- columns: result_no, score_name (e.g. 'ragas.faithfulness'), row_score (null: the tool could not score it)
-- kind: table
SELECT
    r.result_no,
    e.key                             AS score_name,
    json_number(e.value)              AS row_score
FROM (
    SELECT
        CAST(run_id AS VARCHAR)                             AS run_id,
        shown_text(CAST(query_id AS VARCHAR))               AS query_id,
        row_mark(row_hash(query_id, result_json))           AS row_mark,
        TRY(json_extract(CAST(result_json AS VARCHAR), '$.scores')) AS scores
    FROM stored_fields
) AS s
JOIN results AS r ON r.run_id = s.run_id AND r.query_id = s.query_id AND r.row_mark = s.row_mark,
    json_each(s.scores) AS e
WHERE json_type(s.scores) = 'OBJECT' AND r.result_no NOT IN (SELECT result_no FROM bad_rows)
