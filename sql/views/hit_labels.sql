-- hit_labels: the labels that each hit matches, and how much text the two have in common.
-- columns: run_id, query_id, result_no, position, rank, chunk_id (the hit's), kind ('chunk', 'span', 'document' or
--          'support'), label (a chunk's or document's id, or which span or support of the query), counts (false: it shares
--          text with the label, but too little), shared, hit_size, label_size (in the units of the axis: lines,
--          characters, …; null if places did not decide)
-- kind: view
-- shown: yes
-- example: SELECT run_id, query_id, rank, kind, label, shared / label_size AS share FROM hit_labels WHERE counts ORDER BY run_id, query_id, rank, kind, label LIMIT 20
WITH labelled AS (
    SELECT
        f.result_no,
        f.position,
        CASE
            WHEN m.matching = 'span' AND q.n_expected_spans > 0 THEN 'span'
            WHEN m.matching = 'doc'                             THEN 'document'
            WHEN m.matching = 'support'                         THEN 'support'
            ELSE                                                     'chunk'
        END     AS kind,
        f.place AS label,
        true    AS counts
    FROM found_places AS f
    JOIN matching AS m ON m.result_no = f.result_no
    JOIN queries AS q ON q.query_id = m.query_id

    UNION
    SELECT d.result_no, d.position, 'document', h.doc_id, true
    FROM doc_matches AS d
    JOIN hits AS h ON h.result_no = d.result_no AND h.position = d.position

    UNION
    SELECT result_no, position, 'support', CONCAT('support ', CAST(support_no AS STRING)), true
    FROM support_hits

    UNION
    SELECT
        o.result_no,
        o.position,
        CASE WHEN q.n_expected_spans > 0 THEN 'span' ELSE 'chunk' END,
        o.place,
        false
    FROM shared_text AS o
    JOIN matching AS m ON m.result_no = o.result_no AND m.matching = 'span'
    JOIN queries AS q ON q.query_id = m.query_id
    LEFT JOIN found_places AS f
        ON  f.result_no = o.result_no
        AND f.position = o.position
        AND f.place = o.place
    WHERE f.result_no IS NULL
)

SELECT
    r.run_id,
    r.query_id,
    p.result_no,
    p.position,
    h.rank,
    h.chunk_id,
    p.kind,
    p.label,
    p.counts,
    o.shared,
    o.hit_size,
    o.place_size AS label_size
FROM labelled AS p
JOIN results AS r ON r.result_no = p.result_no
JOIN hits AS h ON h.result_no = p.result_no AND h.position = p.position
LEFT JOIN shared_text AS o
    ON  o.result_no = p.result_no
    AND o.position = p.position
    AND o.place = p.label
