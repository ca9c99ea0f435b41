-- per_query: as sql/grains/per_query.sql, with those columns that metrics of rankings read. One row per query that is
-- evaluated; its labels are judgements of documents, and a document is what a chunk is elsewhere.
-- columns: result_no, in_run, n_hits, n_expected_chunks, n_expected_places
-- kind: view
SELECT
    result_no,
    true       AS in_run,
    n_hits,
    n_relevant AS n_expected_chunks,
    n_relevant AS n_expected_places
FROM judged_queries
