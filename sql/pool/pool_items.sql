-- pool_items: all possible candidates, before equal texts are merged: what runs returned, what a live system
-- returned now, and what was decided on earlier.
-- columns: item_no, query_id, chunk_id, chunker_version, doc_id, path, spans_text, runs, n_runs, best_rank, run_id,
--          text_hash (null for what runs returned: known only when the text is read)
-- kind: table
SELECT
    ROW_NUMBER() OVER (
        ORDER BY query_id, n_runs DESC, best_rank, chunk_id, chunker_version, doc_id, spans_text, text_hash
    ) AS item_no,
    *
FROM (
    SELECT
        query_id, chunk_id, chunker_version, doc_id, path, spans_text, runs, bit_count(runs) AS n_runs, best_rank, run_id,
        CAST(NULL AS VARCHAR) AS text_hash
    FROM pool_hits

    UNION ALL
    SELECT DISTINCT
        query_id, chunk_id, chunker_version, doc_id, path, spans_text, CAST(NULL AS BIT), 0, CAST(NULL AS BIGINT),
        CAST(NULL AS VARCHAR), text_hash
    FROM pool_more
)
