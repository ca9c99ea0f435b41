-- A table of kbeval in the database: the labels that stored numbers were computed with, to explain later how a change of
-- labels affected them. Those that no stored number needs are deleted.

CREATE TABLE IF NOT EXISTS kbeval_golden (
    golden_hash TEXT PRIMARY KEY,
    entries     TEXT NOT NULL,  -- JSON lines, deflated, in base 64
    first_used  TEXT NOT NULL
);
