-- results: one row a query that a run answered.
-- columns: result_no, run_id, query_id, elapsed_ms, error, failed, n_hits, n_repeated_hits,
--          has_answer, answer, grounded, refused
-- kind: table
--
-- Refused: grounded is false or abstained is true; where neither is given, the answer is empty.
SELECT
    result_no,
    run_id,
    query_id,
    elapsed_ms,
    error,
    error IS NOT NULL AS failed,
    CASE WHEN error IS NULL THEN n_hits ELSE 0 END AS n_hits,
    CASE WHEN error IS NULL THEN n_repeated_hits ELSE 0 END AS n_repeated_hits,
    has_answer,
    answer,
    grounded,
    CASE
        WHEN NOT has_answer AND abstained IS NULL            THEN NULL
        WHEN grounded IS NOT NULL OR abstained IS NOT NULL   THEN NOT COALESCE(grounded, true) OR COALESCE(abstained, false)
        ELSE trim(answer, E' \t\r\n') = ''
    END AS refused
FROM (
    SELECT
        p.result_no,
        p.run_id,
        p.query_id,
        json_number(p.r.elapsed_ms)                                                     AS elapsed_ms,
        CASE WHEN b.fault IS NULL THEN NULLIF(NULLIF(p.r.error, ''), 'false')
             ELSE 'the stored row cannot be read: ' || b.fault END                      AS error,
        COALESCE(len(p.r.hits_top_k), 0)                                                AS n_hits,
        COALESCE(list_count(chunk_ids) - list_unique(chunk_ids), 0)                     AS n_repeated_hits,
        b.fault IS NULL AND p.r.answer IS NOT NULL                                      AS has_answer,
        CASE WHEN b.fault IS NULL AND p.r.answer IS NOT NULL
             THEN nfc_normalize(COALESCE(p.r.answer.answer, '')) END                    AS answer,
        CASE WHEN b.fault IS NULL THEN CAST(p.r.answer.grounded AS VARCHAR) = 'true' END AS grounded,
        CASE WHEN b.fault IS NULL THEN CAST(p.r.abstained AS VARCHAR) = 'true' END      AS abstained
    FROM (SELECT *, list_transform(r.hits_top_k, lambda h: h.chunk_id) AS chunk_ids FROM parsed) AS p
    LEFT JOIN bad_rows AS b ON b.result_no = p.result_no
)
