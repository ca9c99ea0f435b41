-- A table of kbeval in the database: everything that a judge was given to read, stored once however often it was judged, so
-- that any judgement can be repeated later.

CREATE TABLE IF NOT EXISTS kbeval_judge_inputs (
    input_hash TEXT PRIMARY KEY,  -- SHA-256 of input_json
    input_json TEXT NOT NULL      -- prompt, schema of the reply, where the context came from
);
