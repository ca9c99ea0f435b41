-- chunk_matches: the hits that count as an expected chunk: by its id, unless spans are to decide (placed_matches).
-- columns: result_no, position, rank
-- kind: view
SELECT result_no, position, rank FROM id_matches
