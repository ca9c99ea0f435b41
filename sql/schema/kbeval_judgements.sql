-- A table of kbeval in the database: the judgements, one row per question that a judge was asked. Rows are
-- added and never changed. The key is a hash of provider, model, base URL, the rubric's text, parameters, full input and
-- repetition: the same question is not asked twice.

CREATE TABLE IF NOT EXISTS kbeval_judgements (
    judgement_key   TEXT PRIMARY KEY,
    provider        TEXT NOT NULL,     -- 'local', 'openai' or 'anthropic'
    model           TEXT NOT NULL,
    base_url        TEXT NOT NULL,
    rubric          TEXT NOT NULL,     -- its name
    rubric_hash     TEXT NOT NULL,     -- of its text
    parameters_json TEXT NOT NULL,
    input_hash      TEXT NOT NULL,     -- see kbeval_judge_inputs
    repetition      INTEGER NOT NULL,
    state           TEXT NOT NULL,     -- 'scored' or 'unscored'
    score           REAL,              -- null: unscored
    reasoning       TEXT,
    supported_json  TEXT,              -- a list of claims; null: the rubric does not ask for them
    unsupported_json TEXT,
    why             TEXT,              -- why it is unscored
    reply           TEXT,              -- the last reply, unchanged
    requests        INTEGER NOT NULL,  -- 2: the first reply could not be read
    tokens_in       INTEGER,           -- null: the server did not state it
    tokens_out      INTEGER,
    cost_usd        REAL,              -- null: the price or the usage is unknown
    elapsed_ms      REAL,
    created_at      TEXT NOT NULL
);
