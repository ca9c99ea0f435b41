"""A workspace for a user's own data: settings, a golden file, an empty database, and a script that records runs."""

from __future__ import annotations

from pathlib import Path

from kbeval.errors import UsageError
from kbeval.storage.new_database import make_database
from kbeval.util.files import check_target, write_whole

SETTINGS, GOLDEN, DATABASE, SCRIPT = "kbeval.toml", "golden.yaml", "workspace.db", "record_run.py"

_SETTINGS = f"""\
# Settings of kbeval for this folder; 'kbeval config' shows all of them, and where each comes from.
db = "{DATABASE}"
golden = "{GOLDEN}"

# [gates]             # checked by 'kbeval gate', for CI
# min = {{ mrr = 0.6 }}
"""

_GOLDEN = """\
# Golden queries: the questions to ask, and what a good answer is. Replace these with your own.
#
# Where is the answer? Give at least one of these; expected_spans stay valid when you change the chunker.
#   expected_spans       [{doc_id: sign-in, kind: line, start: 14, end: 15}]: the place of the answer in its document
#   expected_doc_ids     the documents that contain the answer
#   expected_chunk_ids   the chunks that contain it, by the ids of one chunker
# What must the answer contain?
#   must_contain, forbidden   texts that must, or must not, be in it
#
# Should the system refuse to answer? 'answerable: false' means yes, 'answerable: true' means no. Without 'answerable',
# an explicit 'expected_doc_ids: []' without expected chunks means yes. A query that has neither 'answerable' nor
# 'expected_doc_ids' is unlabelled in this respect: it counts neither as answerable nor as one to refuse.
#
# Your own fields such as 'category', 'lang' or 'team' can be used for slices: kbeval score --all --by category

- id: locked
  query: How long is an account locked after too many wrong passwords?
  expected_spans: [{doc_id: sign-in, kind: line, start: 2, end: 2}]
  expected_doc_ids: [sign-in]
  must_contain: ["fifteen minutes"]
  category: account

- id: refund
  query: Within how many days can I return an item for a refund?
  expected_spans: [{doc_id: orders, kind: line, start: 3, end: 3}]
  expected_doc_ids: [orders]
  must_contain: ["thirty days"]
  category: orders

- id: shipping
  query: Which carrier delivers my order?
  expected_spans: [{doc_id: orders, kind: line, start: 1, end: 1}]
  expected_doc_ids: [orders]
  category: orders

- id: lisbon
  query: Do you have an office in Lisbon?
  answerable: false
  expected_doc_ids: []
  category: company
"""

_SCRIPT = '''\
"""Records runs of a search system, for kbeval to score and compare.

Runs as it is. Then replace `search` and `answer` with calls to your system, and golden.yaml with your own questions.
"""

import time
from pathlib import Path

import kbeval

HERE = Path(__file__).parent
# One run is recorded for each variant of your system.
VARIANTS = {"all-words": {"shortest": 1}, "long-words": {"shortest": 4}}

# A stand-in for your documents: each has an id and some lines.
DOCUMENTS = {
    "sign-in": ["Sign in with your email address and your password.",
                "After five wrong passwords the account is locked for fifteen minutes."],
    "orders": ["A parcel service delivers every order; the carrier is named in the mail.",
               "Track an order with the link in the mail.",
               "You can return an item for a refund within thirty days."],
    "jobs": ["We are looking for people in our office, for an account manager among others.",
             "How long is too long for an answer after an application? Ask the account manager."],
}


def words(text: str, shortest: int) -> set[str]:
    return {word for word in text.lower().replace("?", "").replace(".", "").split() if len(word) >= shortest}


def search(question: str, shortest: int) -> list[dict]:
    """The hits for a question, best first. Replace this with a call to your system."""
    found = []
    for doc_id, lines in DOCUMENTS.items():
        for number, line in enumerate(lines, start=1):
            shared = len(words(question, shortest) & words(line, shortest))
            if shared >= 2:
                place = {"kind": "line", "start": number, "end": number}
                found.append({"chunk_id": f"{doc_id}-{number}", "doc_id": doc_id, "score": shared, "text": line,
                              "source_spans": [place]})
    return sorted(found, key=lambda hit: -hit["score"])[:10]


def answer(hits: list[dict]) -> dict:
    """The answer to a question. Replace this too, or leave answers out to evaluate retrieval alone."""
    return {"answer": hits[0]["text"] if hits else "", "grounded": bool(hits)}


for name, settings in VARIANTS.items():
    config = {"chunker_version": "lines@1", "retriever": name, **settings}
    with kbeval.record(HERE / "workspace.db", suite="default", config=config) as run:
        for entry in kbeval.load_golden(HERE / "golden.yaml").entries:
            started = time.perf_counter()
            hits = search(entry["query"], **settings)
            milliseconds = 1000 * (time.perf_counter() - started)
            run.add(entry["id"], query=entry["query"], hits=hits, answer=answer(hits), elapsed_ms=milliseconds)
    print(f"recorded run {run.run_id} ({name}): {len(run)} queries")
'''


def make_starter(folder: Path) -> dict[str, bool]:
    """Write the files that do not exist yet; returns for each whether it was written. Nothing is overwritten."""
    check_target(folder)
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is not a folder; choose another one: kbeval init DIR"
        raise UsageError(msg)
    texts = {SETTINGS: _SETTINGS, GOLDEN: _GOLDEN, SCRIPT: _SCRIPT}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A dangling link also counts as existing.
        made = {name: not (folder / name).exists() and not (folder / name).is_symlink() for name in (*texts, DATABASE)}
        if made[DATABASE]:
            make_database(folder / DATABASE)
        for name, text in texts.items():
            if made[name]:
                write_whole(folder / name, text)
    except OSError as error:
        msg = f"{folder} cannot be written: {error.strerror or error}; choose another folder: kbeval init DIR"
        raise UsageError(msg) from error
    return made
