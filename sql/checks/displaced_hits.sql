-- displaced_hits: for each run, the hits whose own position contradicts everything that is known about their chunk: they
-- are in another document, or at a place that neither contains the known one nor lies in it. Then an index seems to have
-- reused the ids of an earlier one of which nothing was kept.
-- columns: run_id, n_compared (hits that state their position and whose chunk is known), n_displaced, n_labels (expected
--          chunks among those that are displaced), query_id (the first of a displaced hit), chunk_id (of that hit)
-- kind: table
-- variants: none, if every hit of a known chunk states the place that the tables have
--
-- A hit may be a part of its chunk, or the chunk with its surroundings: neither contradicts the table. A page without
-- characters states only the page. Documents contradict each other only if the tables contain both names.
WITH said AS (
    SELECT
        s.result_no,
        s.position,
        r.run_id,
        r.query_id,
        s.chunk_id,
        s.doc_id,
        s.chunker_version,
        COALESCE(s.spans_text, s.cited_text) AS spans_text
    FROM hit_sources AS s
    JOIN results AS r ON r.result_no = s.result_no
    WHERE s.chunk_id IS NOT NULL
),

claims AS (
    SELECT
        h.result_no,
        h.position,
        h.run_id,
        h.query_id,
        h.chunk_id,
        h.doc_id <> k.doc_id AND h.doc_id IN (SELECT doc_id FROM indexed_places) AS is_in_other_doc,
        h.spans_text AS hit_text,
        k.spans_text AS chunk_text
    FROM said AS h
    JOIN indexed_places AS k
        ON  k.chunk_id = h.chunk_id
        AND k.chunker_version = COALESCE(h.chunker_version, k.chunker_version)
),

-- Usually both texts are equal, and nothing has to be parsed.
different AS (
    SELECT DISTINCT hit_text, chunk_text FROM claims WHERE hit_text <> chunk_text
),

reach AS (
    SELECT
        spans_text,
        span_axis(span.kind, span.page) AS axis,
        span.kind                       AS kind,
        MIN(span_low(span))             AS low,
        MAX(span_high(span))            AS high
    FROM (
        SELECT spans_text, UNNEST(spans_in(spans_text)) AS span
        FROM (SELECT hit_text AS spans_text FROM different UNION SELECT chunk_text FROM different)
    )
    WHERE is_place(span) AND span.kind <> 'region'
    GROUP BY ALL
),

-- On one axis, or on pages, of which there may be several.
reaches AS (
    SELECT
        d.hit_text,
        d.chunk_text,
        MAX(
            CASE
                WHEN h.axis <> c.axis                       THEN 0
                WHEN h.low >= c.low AND h.high <= c.high    THEN 1
                WHEN c.low >= h.low AND c.high <= h.high    THEN 1
                ELSE 0
            END
        ) = 1 AS is_alike
    FROM different AS d
    JOIN reach AS h ON h.spans_text = d.hit_text
    JOIN reach AS c
        ON  c.spans_text = d.chunk_text
        AND (c.axis = h.axis OR (c.kind = 'page' AND h.kind = 'page'))
    GROUP BY d.hit_text, d.chunk_text
),

-- If several chunks have the same id, one that agrees is sufficient.
held AS (
    SELECT
        c.run_id,
        c.query_id,
        c.result_no,
        c.position,
        c.chunk_id,
        MIN(CASE WHEN COALESCE(c.is_in_other_doc, false) OR NOT COALESCE(p.is_alike, true) THEN 1 ELSE 0 END) AS displaced
    FROM claims AS c
    LEFT JOIN reaches AS p ON p.hit_text = c.hit_text AND p.chunk_text = c.chunk_text
    WHERE c.is_in_other_doc IS NOT NULL OR p.is_alike IS NOT NULL OR c.hit_text = c.chunk_text
    GROUP BY c.run_id, c.query_id, c.result_no, c.position, c.chunk_id
)

SELECT
    h.run_id,
    COUNT(*)                                                                AS n_compared,
    SUM(h.displaced)                                                        AS n_displaced,
    COUNT(DISTINCT CASE WHEN h.displaced = 1 THEN e.chunk_id END)           AS n_labels,
    MIN(CASE WHEN h.displaced = 1 THEN h.query_id END)                      AS query_id,
    MIN_BY(h.chunk_id, (h.query_id, h.position)) FILTER (h.displaced = 1)   AS chunk_id
FROM held AS h
LEFT JOIN (SELECT DISTINCT chunk_id FROM expected_chunks) AS e ON e.chunk_id = h.chunk_id
GROUP BY h.run_id
HAVING SUM(h.displaced) > 0
