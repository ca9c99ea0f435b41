-- A table of kbeval in the database: each judging of a run, by one judge with some rubrics. It is complete when
-- kbeval_judged has the wanted number of rows for it.

CREATE TABLE IF NOT EXISTS kbeval_judgings (
    judging_id      TEXT PRIMARY KEY,
    run_id          TEXT NOT NULL,
    identity        TEXT NOT NULL,     -- a hash of the judge and of everything to be judged: shows whether to continue
    judge           TEXT NOT NULL,     -- a hash of what must not differ between compared runs
    provider        TEXT NOT NULL,
    model           TEXT NOT NULL,
    base_url        TEXT NOT NULL,
    parameters_json TEXT NOT NULL,
    rubrics_json    TEXT NOT NULL,     -- name, hash, scale and text of each
    options_json    TEXT NOT NULL,     -- such as allow_cut_context, and how many contexts were cut
    n_wanted        INTEGER NOT NULL,  -- answers × rubrics
    created_at      TEXT NOT NULL
);
