-- bad_rows: stored rows that cannot be read, and the first thing that is wrong with each.
-- columns: result_no, run_id, query_id, fault
-- kind: table
WITH faults AS (
    SELECT result_no, 0 AS place, shape_fault AS fault
    FROM parsed
    WHERE shape_fault IS NOT NULL

    UNION ALL
    SELECT
        result_no,
        1,
        CASE
            WHEN NOT json_is_number(r.elapsed_ms) THEN 'elapsed_ms is not a number'
            WHEN NOT json_is_bool(r.abstained)    THEN 'abstained is not true or false'
            ELSE 'answer.grounded is not true or false'
        END
    FROM parsed
    WHERE NOT (json_is_number(r.elapsed_ms) AND json_is_bool(r.abstained) AND json_is_bool(r.answer.grounded))

    UNION ALL
    SELECT
        result_no,
        1 + position,
        'hit ' || position || ': '
        || CASE
            WHEN rank IS NOT NULL AND json_rank(rank) IS NULL THEN 'rank is ' || rank || ', not a whole number from 1'
            WHEN NOT json_is_text(chunk_id)                   THEN 'chunk_id is not text'
            WHEN NOT json_is_text(doc_id)                     THEN 'doc_id is not text'
            WHEN NOT json_is_text(doc_path)                   THEN 'doc_path is not text'
            ELSE 'score is not a number'
        END
    FROM parsed_hits
    WHERE (rank IS NOT NULL AND json_rank(rank) IS NULL)
       OR NOT (json_is_text(chunk_id) AND json_is_text(doc_id) AND json_is_text(doc_path) AND json_is_number(score))

    UNION ALL
    SELECT
        result_no,
        1000000 + citation_no,
        'citation ' || citation_no || ': path or chunk_id is not text'
    FROM parsed_citations
    WHERE NOT (json_is_text(chunk_id) AND json_is_text(citation.chunk_id) AND json_is_text(citation.path))
),

firsts AS (
    SELECT result_no, ARG_MIN(fault, place) AS fault
    FROM faults
    GROUP BY result_no
)

SELECT p.result_no, p.run_id, p.query_id, f.fault
FROM firsts AS f
JOIN parsed AS p ON p.result_no = f.result_no
