-- hit_claims: one row per hit, with what the stored row itself states about the hit's place and text.
-- columns: result_no, position, chunk_id, doc_id, path, chunker_version (null: not stated), spans_text (its
--          source_spans; null: none that can be used), has_bad_spans (at least one of them is not a position), cited_text
--          (the span of its citation; null: likewise), characters (of its text; null: the text is missing or was cut short)
-- kind: table
SELECT
    h.result_no,
    h.position,
    h.chunk_id,
    h.doc_id,
    h.path,
    h.chunker_version,
    CASE WHEN s.n_usable > 0 THEN s.spans_json END AS spans_text,
    -- A missing value is not a fault.
    CASE WHEN COALESCE(h.spans_json, 'null') = 'null' THEN false
         ELSE COALESCE(s.n_usable < s.n_spans, true) END AS has_bad_spans,
    CASE WHEN c.n_usable > 0 THEN c.spans_json END AS cited_text,
    h.characters
FROM stated_hits AS h
LEFT JOIN stated_spans AS s ON s.spans_json = h.spans_json
LEFT JOIN stated_spans AS c ON c.spans_json = h.cited_json
