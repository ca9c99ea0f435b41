-- hit_places: the document and the place of each hit. The place: its source_spans, otherwise the place of its chunk in the
-- tables, and only then the span of its citation, which often covers only a part of the chunk. The document: its doc_id,
-- otherwise that of its chunk in the tables, otherwise that of its path.
-- columns: result_no, position, doc_id (the path, if no table has an id for it), path (null: not stated),
--          spans_text (null: not known)
-- kind: table
-- variants: ids, if chunk ids decide for every run and every hit names its document
SELECT
    h.result_no,
    h.position,
    COALESCE(h.doc_id, k.doc_id, d.doc_id, h.path)     AS doc_id,
    h.path,
    COALESCE(h.spans_text, k.spans_text, h.cited_text) AS spans_text
FROM hit_sources AS h
LEFT JOIN doc_paths AS d ON d.path = h.path
LEFT JOIN chosen_places AS k
    ON  k.chunk_id = h.chunk_id
    AND k.chunker_version IS NOT DISTINCT FROM h.chunker_version
    AND k.policy_hash IS NOT DISTINCT FROM h.policy_hash
    AND k.is_earlier = h.is_earlier
