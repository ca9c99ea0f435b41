-- stated_spans: the distinct texts of spans that hits state, each parsed once.
-- columns: spans_json, n_spans (null: it is not a list of spans), n_usable (those that are meaningful: positions, and
--          captions, which have none)
-- kind: table
SELECT
    spans_json,
    len(spans)      AS n_spans,
    n_usable(spans) AS n_usable
FROM (
    SELECT spans_json, spans_in(spans_json) AS spans
    FROM (SELECT spans_json FROM stated_hits UNION SELECT cited_json FROM stated_hits)
    WHERE spans_json IS NOT NULL
)
