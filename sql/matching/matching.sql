-- matching: what decides which hits of each result are correct.
-- columns: result_no, query_id, matching ('exact': chunk ids, 'span': overlap, 'doc': the document alone, 'support': gold
--          supports, if nothing else is expected, 'unmatched': nothing can decide, because neither the place nor the
--          document of what is expected is known, or because the chunks of the hits are ambiguous)
-- kind: table
--
-- Overlap decides if the places of the answer and of the hits in their documents are known and comparable: not too complex,
-- and with each hit sharing a kind of position with each expected place in its document. Otherwise the document decides for
-- the whole query: a hit by bytes that cannot be compared with a label by lines would be a miss without evidence. Runs that
-- are compared are matched in the same way, so if overlap cannot decide in one run, it does not in the other.
WITH placed AS (
    SELECT e.query_id
    FROM expected_spans AS e
    LEFT JOIN complex_sets AS c ON c.owner = 'place' AND c.major = e.query_id
    GROUP BY e.query_id
    HAVING COUNT(c.owner) = 0
),

documented AS (
    SELECT query_id FROM place_docs GROUP BY query_id
),

undecided AS (
    -- A hit in an expected document in which no place is expected is a miss, wherever it is.
    SELECT n.query_id, n.result_no
    FROM near_hits AS n
    JOIN expected_places AS p ON p.query_id = n.query_id AND p.doc_id = n.doc_id
    WHERE NOT n.is_placed

    UNION ALL
    SELECT n.query_id, n.result_no
    FROM near_hits AS n
    JOIN expected_places AS p ON p.query_id = n.query_id AND p.doc_id = n.path
    WHERE NOT n.is_placed

    UNION ALL
    SELECT n.query_id, n.result_no
    FROM near_hits AS n
    JOIN complex_sets AS c
        ON  c.owner = 'hit'
        AND c.major = CAST(n.result_no AS STRING)
        AND c.minor = CAST(n.position AS STRING)

    UNION ALL
    SELECT query_id, result_no
    FROM unmet_hits
),

unplaced AS (
    SELECT DISTINCT u.query_id, CASE WHEN s.together THEN 0 ELSE u.result_no END AS result_no
    FROM undecided AS u
    CROSS JOIN settings AS s
)

SELECT
    r.result_no,
    r.query_id,
    CASE
        WHEN m.matching = 'exact' AND q.n_expected_chunks > 0                 THEN 'exact'
        WHEN m.matching = 'none' AND q.n_expected_chunks + q.n_expected_spans > 0 THEN 'unmatched'
        WHEN p.query_id IS NOT NULL AND u.query_id IS NULL                    THEN 'span'
        WHEN q.n_expected_chunks + q.n_expected_spans + q.n_expected_docs = 0 THEN 'support'
        WHEN d.query_id IS NULL                                               THEN 'unmatched'
        ELSE                                                                       'doc'
    END AS matching
FROM results AS r
CROSS JOIN settings AS s
JOIN run_matching AS m ON m.run_id = r.run_id
JOIN queries AS q
    ON  q.query_id = r.query_id
    AND q.n_expected_chunks + q.n_expected_docs + q.n_expected_spans + q.n_supports > 0
LEFT JOIN placed AS p ON p.query_id = r.query_id
LEFT JOIN documented AS d ON d.query_id = r.query_id
LEFT JOIN unplaced AS u
    ON  u.query_id = r.query_id
    AND u.result_no = CASE WHEN s.together THEN 0 ELSE r.result_no END
