-- place_texts: the different texts of spans of expected places and of hits.
-- columns: spans_text
-- kind: view
SELECT spans_text FROM expected_places
UNION
SELECT spans_text FROM hit_places
