-- span_matches: the hits that overlap an expected place by enough.
-- columns: result_no, position, rank, chunk_id, place
-- kind: view
SELECT o.result_no, o.position, o.rank, o.chunk_id, o.place
FROM shared_text AS o
CROSS JOIN settings AS s
WHERE o.shared >= s.least_overlap * CASE s.overlap_of
    WHEN 'smaller'  THEN LEAST(o.hit_size, o.place_size)
    WHEN 'expected' THEN o.place_size
    WHEN 'hit'      THEN o.hit_size
    ELSE                 o.hit_size + o.place_size - o.shared
END
