-- place_counts: the number of expected places that a result could have found, if chunk ids do not decide.
-- columns: result_no, n_places (0: only the document is known), is_matchable (false: not even that)
-- kind: table
-- variants: ids, if chunk ids decide for every run
WITH placed AS (
    SELECT query_id, COUNT(DISTINCT place) AS n_places
    FROM expected_spans
    GROUP BY query_id
)

SELECT
    m.result_no,
    CASE WHEN m.matching = 'span' THEN p.n_places ELSE 0 END AS n_places,
    m.matching <> 'unmatched'                                     AS is_matchable
FROM matching AS m
LEFT JOIN placed AS p ON p.query_id = m.query_id
WHERE m.matching <> 'exact'
