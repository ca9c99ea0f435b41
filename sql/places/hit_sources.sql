-- hit_sources: one row per hit, and what is known about its place; a hit without a chunker has that of its run.
-- columns: result_no, position, chunk_id, doc_id, path, chunker_version, stated_version (that of the hit or of the run's
--          configuration; null: neither states it), policy_hash (the run's; null: not known), is_earlier (the run is of an
--          earlier index), spans_text, cited_text, characters (null: not stated)
-- kind: view
SELECT
    c.result_no,
    c.position,
    c.chunk_id,
    c.doc_id,
    c.path,
    COALESCE(c.chunker_version, u.chunker_version) AS chunker_version,
    COALESCE(c.chunker_version, CASE WHEN u.version_source = 'config' THEN u.chunker_version END) AS stated_version,
    u.policy_hash,
    u.is_earlier,
    c.spans_text,
    c.cited_text,
    c.characters
FROM hit_claims AS c
JOIN results AS r ON r.result_no = c.result_no
JOIN run_chunkers AS u ON u.run_id = r.run_id
