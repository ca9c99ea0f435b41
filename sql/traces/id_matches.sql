-- id_matches: as sql/matching/id_matches.sql. A retrieved id has its place in the list as its rank.
-- kind: table
SELECT result_no, position, position AS rank, place
FROM (
    SELECT w.result_no, list_position(t.retrieved, w.chunk_id) AS position, w.chunk_id AS place
    FROM wanted_chunks AS w
    JOIN traces AS t ON t.rowid = w.result_no
)
WHERE position > 0
