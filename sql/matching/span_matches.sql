-- span_matches: the hits that overlap an expected place sufficiently.
-- columns: result_no, position, rank, chunk_id, place
-- kind: view
-- variants: none, if chunk ids decide for every run
--
-- A label that is a chunk is as coarse as its chunker, and matched by the smaller side, so that chunkers that split and
-- chunkers that merge are both matched. A label that is a span is the answer itself: the hit must contain enough of it.
SELECT o.result_no, o.position, o.rank, o.chunk_id, o.place
FROM shared_text AS o
CROSS JOIN settings AS s
WHERE o.shared >= s.least_overlap * CASE
    WHEN s.overlap_of = 'expected'                       THEN o.place_size
    WHEN s.overlap_of = 'auto' AND o.is_span_label       THEN o.place_size
    WHEN s.overlap_of IN ('auto', 'smaller')             THEN LEAST(o.hit_size, o.place_size)
    WHEN s.overlap_of = 'hit'                            THEN o.hit_size
    ELSE                                                      o.hit_size + o.place_size - o.shared
END
