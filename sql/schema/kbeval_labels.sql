-- A table of kbeval in the database: the decisions that people made while labelling, one row per decision, with person,
-- time and text. Rows are added, and marked as undone, never deleted; the latest one that is not undone counts.

CREATE TABLE IF NOT EXISTS kbeval_labels (
    label_no        INTEGER PRIMARY KEY,
    query_id        TEXT NOT NULL,
    annotator       TEXT NOT NULL,
    field           TEXT NOT NULL,     -- 'supports', 'answerable', 'must_contain', 'query', 'entry', 'note'; 'score:RUBRIC'
    item            TEXT NOT NULL,     -- what it is about: text_hash, the text of a rule, a run; '' for the query itself
    value_json      TEXT NOT NULL,     -- "yes", "no" or "skip" for 'supports'; true, false; a text; a score
    is_settlement   INTEGER NOT NULL,  -- 1: it settles a disagreement
    text_hash       TEXT,              -- SHA-256 of the text that was read
    chunk_id        TEXT,
    chunker_version TEXT,
    doc_id          TEXT,
    path            TEXT,
    headings_json   TEXT,
    spans_json      TEXT,              -- of the selected passage, otherwise of the whole text
    passage         TEXT,              -- null: the whole text
    state           TEXT NOT NULL,     -- 'pending': not in the golden file yet; 'written'; 'kept': it is not for the
                                       -- file; 'held': people disagree; 'refused': the file has changed since
    written_json    TEXT,              -- the entry before and after it was written; what an undo restores
    decided_at      TEXT NOT NULL,
    undone_at       TEXT
);
