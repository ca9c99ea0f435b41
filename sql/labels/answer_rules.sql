-- answer_rules: strings that an answer must, or must not, contain.
-- columns: query_id, needle (normalised as answers are), must_contain (false: forbidden)
-- kind: table
SELECT DISTINCT query_id, nfc_normalize(needle) AS needle, must_contain
FROM (
    SELECT e.id AS query_id, UNNEST(e.must_contain) AS needle, true AS must_contain
    FROM golden_entries
    UNION ALL
    SELECT e.id, UNNEST(e.forbidden), false
    FROM golden_entries
)
