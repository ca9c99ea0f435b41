-- displaced_labels: for each run, the expected chunks that its hits name by id, but in another document than any that the
-- tables have for them, if the tables contain both documents. As displaced_hits, without reading the rows again.
-- columns: run_id, n_labels, query_id (the first), chunk_id (of that query)
-- kind: view
WITH found AS (
    SELECT place, doc_id
    FROM id_matches
    WHERE doc_id IS NOT NULL
    GROUP BY place, doc_id
),

-- There are far fewer pairs of a chunk and a document than hits, and usually none is displaced.
displaced AS (
    SELECT f.place, f.doc_id
    FROM found AS f
    JOIN known_chunks AS k ON k.chunk_id = f.place
    WHERE k.doc_id IS NOT NULL AND f.doc_id IN (SELECT doc_id FROM known_chunks)
    GROUP BY f.place, f.doc_id
    HAVING COUNT(CASE WHEN k.doc_id = f.doc_id THEN 1 END) = 0
),

labels AS (
    SELECT r.run_id, r.query_id, i.place
    FROM displaced AS d
    JOIN id_matches AS i ON i.place = d.place AND i.doc_id = d.doc_id
    JOIN results AS r ON r.result_no = i.result_no
),

firsts AS (
    SELECT run_id, query_id, MIN(place) AS place
    FROM labels
    GROUP BY run_id, query_id
)

SELECT
    n.run_id,
    n.n_labels,
    f.query_id,
    f.chunk_id
FROM (SELECT run_id, COUNT(DISTINCT place) AS n_labels FROM labels GROUP BY run_id) AS n
JOIN (
    SELECT run_id, MIN(query_id) AS query_id, MIN_BY(place, query_id) AS chunk_id FROM firsts GROUP BY run_id
) AS f ON f.run_id = n.run_id
