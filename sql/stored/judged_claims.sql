-- judged_claims: one row per claim that a judge found in an answer.
-- columns: result_no, run_id, query_id, rubric, judging_id, is_supported, place (in the judge's list, from 1), claim
-- kind: view
-- shown: yes
SELECT
    result_no,
    run_id,
    query_id,
    rubric,
    judging_id,
    is_supported,
    place,
    claims[place] AS claim
FROM (
    SELECT
        result_no, run_id, query_id, rubric, judging_id, is_supported, claims,
        UNNEST(range(1, len(claims) + 1)) AS place
    FROM (
        SELECT *, true AS is_supported, TRY(from_json(supported, '["VARCHAR"]')) AS claims FROM judgements
        UNION ALL
        SELECT *, false AS is_supported, TRY(from_json(unsupported, '["VARCHAR"]')) AS claims FROM judgements
    )
)
