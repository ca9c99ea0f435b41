-- hit_places: as hit_places.sql, if no label is about spans and every hit names its document: then the place does
-- not matter.
-- kind: view
SELECT
    result_no,
    position,
    doc_id,
    CAST(NULL AS STRING) AS path,
    CAST(NULL AS STRING) AS spans_text
FROM hits
