-- span_iou_at_k: how large is the intersection of the expected text and the text of the first k hits, relative to their
-- union?
-- labels: expected_spans
-- grain: per_piece
-- where: n_expected_chunks > 0
-- k:     1 3 5 10
CASE
    WHEN MAX(CASE WHEN is_clear THEN 1 ELSE 0 END) = 1 THEN
        COALESCE(
            CAST(SUM(CASE WHEN is_expected_text AND rank <= :k THEN size ELSE 0 END) AS DOUBLE)
            / NULLIF(CAST(SUM(CASE WHEN is_expected_text OR rank <= :k THEN size ELSE 0 END) AS DOUBLE), 0), 0
        )
END
