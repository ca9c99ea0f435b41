-- parsed_hits: one row per stored hit, including those of failed and unreadable rows.
-- columns: result_no, position, rank (null: not a whole number from 1), chunk_id, doc_id, score, chunker_version,
--          token_count, rank_json
-- kind: table
SELECT
    result_no,
    position,
    CASE WHEN rank IS NULL THEN position ELSE json_rank(rank) END AS rank,
    chunk_id,
    doc_id,
    score,
    chunker_version,
    token_count,
    rank AS rank_json
FROM (
    SELECT
        result_no,
        UNNEST(range(1, len(r.hits_top_k) + 1)) AS position,
        UNNEST(r.hits_top_k, recursive := true)
    FROM parsed
)
