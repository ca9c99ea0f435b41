-- anchor_rows: the other fields of rows of the anchor-labelled system, besides hits and answer, parsed once.
-- columns: result_no, hits, reference_list, folders (those that the system chose), folder_mode (null: not stated),
--          total_ms, judge_groundedness, judge_correctness, judge_tokens, judge_cost_usd
-- kind: table
SELECT
    r.result_no,
    a.hits_top_k                               AS hits,
    a."references"                             AS reference_list,
    -- At the top of the row, or under debug: the first that names any.
    CASE WHEN len(chosen_folders(a.folder_selection)) > 0
         THEN chosen_folders(a.folder_selection)
         ELSE chosen_folders(a.debug.folder_selection)
    END                                        AS folders,
    NULLIF(a.config.folder_mode, '')           AS folder_mode,
    json_number(a.latency.total_ms)            AS total_ms,
    json_number(a.groundedness.score)          AS judge_groundedness,
    json_number(a.correctness.score)           AS judge_correctness,
    json_number(a.cost.judge_tokens)           AS judge_tokens,
    json_number(a.cost.judge_cost_usd)         AS judge_cost_usd
FROM (
    SELECT
        CAST(run_id AS VARCHAR)   AS run_id,
        shown_text(CAST(query_id AS VARCHAR)) AS query_id,
        TRY(from_json(CAST(result_json AS VARCHAR), '{
            "hits_top_k": [{
                "rel_path": "VARCHAR", "doc_path": "VARCHAR", "heading_path": "JSON",
                "text": "VARCHAR", "snippet": "VARCHAR", "vault": "VARCHAR"
            }],
            "references": [{"rel_path": "VARCHAR", "heading_path": "JSON", "vault": "VARCHAR"}],
            "folder_selection": "JSON",
            "config": {"folder_mode": "VARCHAR"},
            "debug": {"folder_selection": "JSON"},
            "latency": {"total_ms": "JSON"},
            "groundedness": {"score": "JSON"},
            "correctness": {"score": "JSON"},
            "cost": {"judge_tokens": "JSON", "judge_cost_usd": "JSON"}
        }'))                      AS a
    FROM stored_anchors
) AS s
JOIN results AS r ON r.run_id = s.run_id AND r.query_id = s.query_id
