-- span_sets: the spans that are compared with each other: those of expected places and of the hits near them.
-- columns: owner ('hit' or 'place'), major, minor (a hit's result_no and position, a place's query_id and name),
--          axis, low, high, bottom, top
-- kind: table
SELECT
    'place'  AS owner,
    query_id AS major,
    place    AS minor,
    axis, low, high, bottom, top
FROM expected_spans

UNION ALL
SELECT
    'hit',
    CAST(s.result_no AS STRING),
    CAST(s.position AS STRING),
    s.axis, s.low, s.high, s.bottom, s.top
FROM near_hits AS n
JOIN hit_spans AS s ON s.result_no = n.result_no AND s.position = n.position
