-- trace_hits: one row a retrieved id, with its place in the list.
-- columns: result_no, position, chunk_id
-- kind: table
SELECT
    rowid                                AS result_no,
    UNNEST(range(1, len(retrieved) + 1)) AS position,
    UNNEST(retrieved)                    AS chunk_id
FROM traces
