-- results: one row a query that a run answered.
-- columns: result_no, run_id, query_id, elapsed_ms, error, failed, n_hits, has_answer, grounded, refused,
--          flagged (the row itself says grounded or abstained), is_empty (no error, and no text in the answer)
-- kind: table
--
-- A row that cannot be read is a failed query, and has no hits. A query that failed after retrieval keeps its hits.
-- Refused: grounded is false or abstained is true; where neither is given, the answer is empty.
SELECT
    result_no,
    run_id,
    query_id,
    elapsed_ms,
    error,
    error IS NOT NULL                             AS failed,
    n_hits,
    has_answer,
    grounded,
    CASE
        WHEN grounded IS NOT NULL OR abstained IS NOT NULL
            THEN NOT COALESCE(grounded, true) OR COALESCE(abstained, false)
        WHEN has_answer
            THEN trim(COALESCE(answer, ''), E' \t\r\n') = ''
    END                                           AS refused,
    grounded IS NOT NULL OR abstained IS NOT NULL AS flagged,
    -- Trimming is slow on long texts, and those are not empty.
    error IS NULL AND CASE WHEN length(answer) > 99 THEN false
                           ELSE trim(COALESCE(answer, ''), E' \t\r\n') = '' END AS is_empty
FROM (
    SELECT
        result_no,
        run_id,
        query_id,
        json_number(r.elapsed_ms)                   AS elapsed_ms,
        NULLIF(NULLIF(r.error, ''), 'false')        AS error,
        COALESCE(len(r.hits_top_k), 0)              AS n_hits,
        r.answer IS NOT NULL                        AS has_answer,
        r.answer.answer                             AS answer,
        CAST(r.answer.grounded AS VARCHAR) = 'true' AS grounded,
        CAST(r.abstained AS VARCHAR) = 'true'       AS abstained
    FROM parsed
    WHERE result_no NOT IN (SELECT result_no FROM bad_rows)

    UNION ALL
    SELECT result_no, run_id, query_id, NULL, 'the stored row cannot be read: ' || fault, 0, false, NULL, NULL, NULL
    FROM bad_rows
)
