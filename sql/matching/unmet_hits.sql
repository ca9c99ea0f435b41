-- unmet_hits: the hits near an answer that cannot be compared with it: they are in a document with an expected place, but
-- have other kinds of position (such as lines and bytes), so it is unknown whether they share any text.
-- columns: result_no, query_id, position, hit_kind, place_kind (one kind of position of either; 'page' for any page)
-- kind: table
--
-- Page 3 and page 5 are of one kind: a hit on another page is a miss. A caption has no position and is a miss too.
WITH kinds AS (
    SELECT DISTINCT owner, major, minor, CASE WHEN axis LIKE 'page %' THEN 'page' ELSE axis END AS kind
    FROM span_sets
),

place_kinds AS (
    SELECT p.query_id, p.place, p.doc_id, k.kind
    FROM expected_places AS p
    JOIN kinds AS k ON k.owner = 'place' AND k.major = p.query_id AND k.minor = p.place
),

hit_kinds AS (
    SELECT n.result_no, n.query_id, n.position, n.doc_id, n.path, k.kind
    FROM near_hits AS n
    JOIN kinds AS k
        ON  k.owner = 'hit'
        AND k.major = CAST(n.result_no AS STRING)
        AND k.minor = CAST(n.position AS STRING)
),

held AS (
    SELECT h.result_no, h.query_id, h.position, p.place, h.kind AS hit_kind, p.kind AS place_kind
    FROM hit_kinds AS h
    JOIN place_kinds AS p ON p.query_id = h.query_id AND p.doc_id = h.doc_id

    UNION ALL
    SELECT h.result_no, h.query_id, h.position, p.place, h.kind, p.kind
    FROM hit_kinds AS h
    JOIN place_kinds AS p ON p.query_id = h.query_id AND p.doc_id = h.path
)

SELECT h.result_no, h.query_id, h.position, MIN(h.hit_kind) AS hit_kind, MIN(h.place_kind) AS place_kind
FROM held AS h
GROUP BY h.result_no, h.query_id, h.position, h.place
HAVING MAX(CASE WHEN h.hit_kind = h.place_kind THEN 1 ELSE 0 END) = 0
