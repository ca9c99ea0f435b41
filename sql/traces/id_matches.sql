-- id_matches: as sql/matching/id_matches.sql. The rank of a retrieved id is its position in the list.
-- kind: table
SELECT result_no, position, position AS rank, place
FROM (
    SELECT w.result_no, list_position(t.retrieved, w.chunk_id) AS position, w.chunk_id AS place
    FROM wanted_chunks AS w
    JOIN traces AS t ON t.rowid = w.result_no
)
WHERE position > 0
