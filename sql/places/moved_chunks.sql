-- moved_chunks: kept chunks whose id the table `chunks` now uses for another place, under the same version and policy;
-- one row for each row of the table that differs from it.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text (where it was), tokens, seen_in
-- kind: table
-- variants: none, if the table has every kept chunk that it names at the place that was kept
SELECT a.chunk_id, a.chunker_version, a.policy_hash, a.doc_id, a.spans_text, a.tokens, a.seen_in
FROM kept_chunks AS a
JOIN chunks AS c
    ON  c.chunk_id = a.chunk_id
    AND c.chunker_version = a.chunker_version
    AND c.policy_hash = a.policy_hash
LEFT JOIN table_places AS cp ON cp.spans_text = c.spans_text
LEFT JOIN table_places AS ap ON ap.spans_text = a.spans_text
WHERE stands_elsewhere(c.doc_id, cp.place_text, a.doc_id, ap.place_text)
