-- stranger_chunks: runs that are matched by id and name no expected chunk in any query, if either the hits or the labels
-- are in no table and no hit has the id of a label of another query: then nothing shows that both belong to one index,
-- and 0 may mean 'could not be matched'.
-- columns: run_id, hit, label (one of each, to show; a pair that differs only in case and surrounding spaces if there is
--          one), is_alike (they do), labels_known (an expected id is in a table)
-- kind: table
WITH asked AS (
    SELECT u.run_id, r.result_no, e.chunk_id AS label, k.chunk_id AS known
    FROM run_matching AS u
    JOIN results AS r ON r.run_id = u.run_id
    JOIN expected_chunks AS e ON e.query_id = r.query_id
    LEFT JOIN (SELECT DISTINCT chunk_id FROM indexed_places) AS k ON k.chunk_id = e.chunk_id
    WHERE u.matching = 'exact'
      AND u.run_id NOT IN (SELECT f.run_id FROM id_matches AS i JOIN results AS f ON f.result_no = i.result_no)
),

met AS (
    SELECT a.run_id, h.chunk_id AS hit, k.chunk_id AS known, o.chunk_id AS other_label
    FROM (SELECT DISTINCT run_id, result_no FROM asked) AS a
    JOIN hits AS h ON h.result_no = a.result_no AND h.chunk_id IS NOT NULL
    LEFT JOIN (SELECT DISTINCT chunk_id FROM indexed_places) AS k ON k.chunk_id = h.chunk_id
    LEFT JOIN (SELECT DISTINCT chunk_id FROM expected_chunks) AS o ON o.chunk_id = h.chunk_id
),

labels AS (
    SELECT run_id, MIN(label) AS label, COUNT(known) AS n_known FROM asked GROUP BY run_id
),

named AS (
    SELECT run_id, MIN(hit) AS hit, COUNT(known) AS n_known
    FROM met
    GROUP BY run_id
    HAVING COUNT(other_label) = 0
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
    l.run_id,
    COALESCE(x.hit, n.hit)     AS hit,
    COALESCE(x.label, l.label) AS label,
    x.run_id IS NOT NULL       AS is_alike,
    l.n_known > 0              AS labels_known
FROM labels AS l
JOIN named AS n ON n.run_id = l.run_id
LEFT JOIN alike AS x ON x.run_id = l.run_id
WHERE l.n_known = 0 OR n.n_known = 0
