-- citation_checks: does each citation lead to a real chunk?
-- columns: result_no, citation_no, is_real
-- kind: table
-- variants: none, if no answer has a citation
--
-- A citation is real when it names a known chunk, or when its document has a chunk that shares at least one unit
-- with it; one with only a path needs any chunk of that document. A malformed one resolves to nothing. The same few places
-- are cited again and again, so each distinct place is looked up once.
WITH places AS (
    SELECT doc_id, axis, low, high, bottom, top
    FROM citations
    WHERE chunk_id IS NULL AND axis IS NOT NULL
    GROUP BY doc_id, axis, low, high, bottom, top
),

real_places AS (
    SELECT p.doc_id, p.axis, p.low, p.high, p.bottom, p.top
    FROM places AS p
    JOIN chunk_spans AS s ON s.doc_id = p.doc_id AND s.axis = p.axis
    WHERE s.low < p.high
      AND p.low < s.high
      AND s.bottom < p.top
      AND p.bottom < s.top
    GROUP BY p.doc_id, p.axis, p.low, p.high, p.bottom, p.top
),

real_documents AS (
    SELECT doc_id FROM known_chunks GROUP BY doc_id
)

SELECT
    c.result_no,
    c.citation_no,
    -- If several documents share the path, any of them is sufficient.
    MAX(
        CASE
            WHEN c.is_malformed         THEN 0
            WHEN c.chunk_id IS NOT NULL THEN CASE WHEN k.chunk_id IS NULL THEN 0 ELSE 1 END
            WHEN c.axis IS NOT NULL     THEN CASE WHEN p.doc_id IS NULL THEN 0 ELSE 1 END
            ELSE                             CASE WHEN d.doc_id IS NULL THEN 0 ELSE 1 END
        END
    ) = 1 AS is_real
FROM citations AS c
LEFT JOIN known_chunks AS k ON k.chunk_id = c.chunk_id
LEFT JOIN real_documents AS d ON d.doc_id = c.doc_id
LEFT JOIN real_places AS p
    ON  p.doc_id = c.doc_id
    AND p.axis = c.axis
    AND p.low = c.low
    AND p.high = c.high
    AND p.bottom = c.bottom
    AND p.top = c.top
GROUP BY c.result_no, c.citation_no
