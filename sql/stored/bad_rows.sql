-- bad_rows: stored rows that cannot be read, and the first fault of each.
-- columns: result_no, run_id, query_id, fault
-- kind: table
-- shown: yes
WITH bad_hits AS (
    SELECT
        result_no,
        position,
        CASE
            WHEN rank IS NULL THEN 'rank is ' || CAST(rank_json AS VARCHAR) || ', not a whole number from 1'
            WHEN is_json_container(chunk_id) THEN 'chunk_id is not text'
            WHEN is_json_container(doc_id) THEN 'doc_id is not text'
            ELSE 'it has no rank, no chunk_id and no doc_id'
        END AS fault
    FROM parsed_hits
    WHERE rank IS NULL
       OR is_json_container(chunk_id)
       OR is_json_container(doc_id)
       OR (chunk_id IS NULL AND doc_id IS NULL AND rank_json IS NULL)
),

first_bad_hits AS (
    SELECT result_no, 'hit ' || MIN(position) || ': ' || ARG_MIN(fault, position) AS fault
    FROM bad_hits
    GROUP BY result_no
)

SELECT p.result_no, p.run_id, p.query_id, COALESCE(p.fault, h.fault) AS fault
FROM parsed AS p
LEFT JOIN first_bad_hits AS h ON h.result_no = p.result_no
WHERE p.fault IS NOT NULL OR h.fault IS NOT NULL
