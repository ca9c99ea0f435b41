-- A table of kbeval in the database: the mark (hash) of each row when a run was scored, to determine later which rows have
-- changed. Only if the rows themselves are not cached next to the database.

CREATE TABLE IF NOT EXISTS kbeval_rows (
    run_id TEXT PRIMARY KEY,
    rows   TEXT NOT NULL,  -- the digest of all rows, as in the provenance of the stored numbers
    marks  TEXT NOT NULL   -- a JSON object, a mark for each query, deflated, in base 64
);
