-- per_query: as sql/grains/per_query.sql, with the columns that metrics of rankings read. One row per evaluated query; its
-- labels are judgements of documents, which take the role of chunks.
-- columns: result_no, in_run, n_hits, n_expected_chunks, n_expected_places
-- kind: view
SELECT
    result_no,
    true       AS in_run,
    n_hits,
    n_relevant AS n_expected_chunks,
    n_relevant AS n_expected_places
FROM judged_queries
