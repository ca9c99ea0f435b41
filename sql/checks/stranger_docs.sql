-- stranger_docs: runs that retrieve no expected document in any query, if no hit is in a document that the tables or the
-- labels name: then 0 may mean 'could not be matched'.
-- columns: run_id, n_hits, n_named (those that name a document), hit, label (one of each, to show; a pair that differs only
--          in case and surrounding spaces if there is one), is_alike (they do)
-- kind: table
WITH asked AS (
    SELECT r.run_id, r.result_no, e.doc_id AS label
    FROM results AS r
    JOIN expected_docs AS e ON e.query_id = r.query_id
    WHERE r.run_id NOT IN (SELECT f.run_id FROM doc_matches AS d JOIN results AS f ON f.result_no = d.result_no)
),

known AS (
    SELECT doc_id FROM documents WHERE doc_id IS NOT NULL
    UNION
    SELECT doc_id FROM indexed_places WHERE doc_id IS NOT NULL
    UNION
    SELECT doc_id FROM expected_docs
),

met AS (
    SELECT a.run_id, h.doc_id AS hit, k.doc_id AS known
    FROM (SELECT DISTINCT run_id, result_no FROM asked) AS a
    JOIN hit_docs AS h ON h.result_no = a.result_no
    LEFT JOIN known AS k ON k.doc_id = h.doc_id
),

labels AS (
    SELECT run_id, MIN(label) AS label FROM asked GROUP BY run_id
),

named AS (
    SELECT run_id, MIN(hit) AS hit, COUNT(*) AS n_hits, COUNT(hit) AS n_named
    FROM met
    GROUP BY run_id
    HAVING COUNT(known) = 0
),

alike AS (
    SELECT m.run_id, MIN(m.hit) AS hit, MIN(a.label) AS label
    FROM (SELECT DISTINCT run_id, hit, LOWER(TRIM(hit)) AS bare FROM met) AS m
    JOIN (SELECT DISTINCT run_id, label, LOWER(TRIM(label)) AS bare FROM asked) AS a
        ON  a.run_id = m.run_id
        AND a.bare = m.bare
    GROUP BY m.run_id
)

SELECT
    n.run_id,
    n.n_hits,
    n.n_named,
    COALESCE(x.hit, n.hit)     AS hit,
    COALESCE(x.label, l.label) AS label,
    x.run_id IS NOT NULL       AS is_alike
FROM named AS n
JOIN labels AS l ON l.run_id = n.run_id
LEFT JOIN alike AS x ON x.run_id = n.run_id
