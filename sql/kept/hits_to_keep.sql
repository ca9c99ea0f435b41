-- hits_to_keep: chunks that are known only from stored hits, with their source_spans; if these disagree, the one that
-- sighted_chunks would choose. A citation is not kept: it may cover only a part of the chunk. The version is the one that
-- sightings read from the same hits, its own or that of the configuration: what is kept must not change any number.
-- columns: chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens
-- kind: table
-- variants: none, if no hit has source_spans
SELECT chunk_id, chunker_version, policy_hash, doc_id, spans_text, tokens
FROM (
    SELECT
        h.chunk_id,
        COALESCE(h.stated_version, '')           AS chunker_version,
        ''                                       AS policy_hash,
        COALESCE(h.doc_id, d.doc_id)             AS doc_id,
        h.spans_text,
        CAST(NULL AS DOUBLE)                     AS tokens,
        ROW_NUMBER() OVER (
            PARTITION BY h.chunk_id, COALESCE(h.stated_version, '')
            ORDER BY
                CASE WHEN COALESCE(h.doc_id, d.doc_id, h.path) IS NULL THEN 1 ELSE 0 END,
                h.spans_text,
                COALESCE(h.doc_id, d.doc_id) NULLS LAST
        ) AS choice
    FROM hit_sources AS h
    JOIN (SELECT DISTINCT chunk_id FROM unknown_hits) AS u ON u.chunk_id = h.chunk_id
    LEFT JOIN doc_paths AS d ON d.path = h.path
    LEFT JOIN known_places AS k
        ON  k.chunk_id = h.chunk_id
        AND k.chunker_version = COALESCE(h.chunker_version, k.chunker_version)
    WHERE k.chunk_id IS NULL AND h.spans_text IS NOT NULL
) AS ranked
WHERE choice = 1
