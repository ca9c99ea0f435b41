-- A table of kbeval in the database: which judgement belongs to which answer, for each judging of a run.

CREATE TABLE IF NOT EXISTS kbeval_judged (
    judging_id    TEXT NOT NULL,
    query_id      TEXT NOT NULL,
    rubric        TEXT NOT NULL,
    judgement_key TEXT NOT NULL,
    row_mark      TEXT NOT NULL,     -- of the stored row that was judged: a row that changes is no longer judged
    is_cached     INTEGER NOT NULL,  -- 1: the judgement already existed, and cost nothing here
    PRIMARY KEY (judging_id, query_id, rubric)
);
