-- results: one row per query that a run answered.
-- columns: result_no, run_id, query_id, elapsed_ms, error, failed, n_hits, lists_hits (false: the row does not say what was
--          retrieved, as it has no list `hits_top_k`), has_answer, grounded, refused,
--          flagged (the row itself states grounded or abstained), is_empty (no error, no text in the answer, and the row
--          does not state that the system refused), tokens, cost_usd (what answering took; null: not stated),
--          row_mark (a hash that changes with the row)
-- kind: table
-- shown: yes
--
-- A row that cannot be read is a failed query, and has no hits. A query that failed after retrieval keeps its hits.
-- Refused: grounded is false or abstained is true; if neither is given, the answer is empty. A refusal that the row
-- itself states is not an empty response. An empty answer without a flag counts as both: it may be an outage.
SELECT
    result_no,
    run_id,
    query_id,
    elapsed_ms,
    error,
    error IS NOT NULL                             AS failed,
    n_hits,
    lists_hits,
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
    error IS NULL AND COALESCE(grounded, true) AND NOT COALESCE(abstained, false)
        AND CASE WHEN length(answer) > 99 THEN false
                 ELSE trim(COALESCE(answer, ''), E' \t\r\n') = '' END AS is_empty,
    tokens,
    cost_usd,
    row_mark
FROM (
    SELECT
        result_no,
        run_id,
        query_id,
        json_number(r.elapsed_ms)                   AS elapsed_ms,
        NULLIF(NULLIF(r.error, ''), 'false')        AS error,
        COALESCE(len(r.hits_top_k), 0)              AS n_hits,
        r.hits_top_k IS NOT NULL                    AS lists_hits,
        r.answer IS NOT NULL                        AS has_answer,
        r.answer.answer                             AS answer,
        CAST(r.answer.grounded AS VARCHAR) = 'true' AS grounded,
        said_abstained(r) = 'true'                  AS abstained,
        CASE WHEN r.tokens IS NOT NULL OR r.usage IS NOT NULL THEN tokens_in(r.tokens, r.usage) END AS tokens,
        CASE WHEN r.cost IS NOT NULL OR r.cost_usd IS NOT NULL THEN dollars_in(r.cost, r.cost_usd) END AS cost_usd,
        row_mark(row_hash)                          AS row_mark
    FROM parsed
    WHERE result_no NOT IN (SELECT result_no FROM bad_rows)

    UNION ALL
    SELECT
        b.result_no, b.run_id, b.query_id, NULL, 'the stored row cannot be read: ' || b.fault, 0, false, false, NULL, NULL,
        NULL, NULL, NULL, row_mark(p.row_hash)
    FROM bad_rows AS b
    JOIN parsed AS p ON p.result_no = b.result_no
)
