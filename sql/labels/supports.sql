-- supports: the passages that a golden answer is based on: a file, a heading in it, and words that it contains.
-- columns: query_id, support_no (from 0), path, headings (canonical; '' is the whole file), n_snippets, snippets
-- kind: table
SELECT
    query_id,
    support_no,
    support.rel_path                            AS path,
    canonical_headings(support.heading_path)    AS headings,
    COALESCE(len(support.snippets), 0)          AS n_snippets,
    support.snippets                            AS snippets
FROM (
    SELECT
        e.id                                       AS query_id,
        UNNEST(range(len(e.gold_supports)))        AS support_no,
        UNNEST(e.gold_supports)                    AS support
    FROM golden_entries
)
