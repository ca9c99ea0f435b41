-- What kbeval keeps for itself in the database: what each row was known by when a run was scored, to tell later which rows
-- have changed since. Only where no copy of the rows themselves is kept next to the database.

CREATE TABLE IF NOT EXISTS kbeval_rows (
    run_id TEXT PRIMARY KEY,
    rows   TEXT NOT NULL,  -- the digest of all rows, as in the provenance of the stored numbers
    marks  TEXT NOT NULL   -- a JSON object, a mark for each query, deflated, in base 64
);
