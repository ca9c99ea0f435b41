-- support_snippets: words of which a chunk must hold at least one, to be a support.
-- columns: query_id, support_no, snippet (as it is compared)
-- kind: table
SELECT query_id, support_no, lower(nfc_normalize(UNNEST(support.snippets))) AS snippet
FROM (
    SELECT
        e.id                                       AS query_id,
        UNNEST(range(len(e.gold_supports)))        AS support_no,
        UNNEST(e.gold_supports)                    AS support
    FROM golden_entries
)
