"""`kbeval run` against a real server: what is sent, what is stored, and what happens when things go wrong."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.live.conftest import Place
from tests.support.live_server import LiveServer


def test_a_run_holds_what_the_expressions_found(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    code, out, err = place.run_apart(
        "run", "--run-id", "r1", "--k", "3", "--suite", "nightly", "--description", "first try"
    )
    assert (code, out) == (0, "r1\n")
    assert "stored run r1: 5 queries, 0 errors" in err
    rows = place.results("r1")
    assert sorted(rows) == [f"q00{n}" for n in range(1, 6)]
    row = rows["q002"]
    assert row["query"] == "Question 2?"
    assert row["answer"]["answer"] == "The answer to: Question 2?"
    assert [hit["rank"] for hit in row["hits_top_k"]] == [1, 2, 3]
    assert row["attempts"] == 1
    assert 0 < row["elapsed_ms"] <= row["total_ms"]
    snapshot = place.snapshot("r1")
    assert snapshot["eval_k"] == 3
    assert snapshot["description"] == "first try"
    assert snapshot["target"]["url"] == f"{server.url}/search"
    assert snapshot["versions"]["dataset"]["hash"] == snapshot["golden_hash"]
    assert set(snapshot["versions"]) == {"dataset", "index", "retriever", "answerer"}
    assert snapshot["config_hash"].startswith("sha256:")
    assert place.rows("SELECT COUNT(*), COUNT(result_json) FROM kbeval_attempts") == [(5, 0)]
    assert place.rows("SELECT COUNT(*) FROM kbeval_unfinished_runs") == [(0,)]
    code, out, _ = place.run("score", "r1", "--format", "json")
    assert code == 0


def test_texts_are_cut_unless_asked_for(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    place.run("run", "--run-id", "cut", "--limit", "1")
    place.run("run", "--run-id", "whole", "--limit", "1", "--store-full-text")
    cut, whole = (place.results(name)["q001"]["hits_top_k"][0] for name in ("cut", "whole"))
    assert len(whole["text"]) > 300
    assert cut["text"] == whole["text"][:200] + "..."
    assert cut["text_sha256"] == hashlib.sha256(whole["text"].encode()).hexdigest()
    assert whole["text"][250:] not in place.db.read_bytes().decode("utf-8", "replace").replace(whole["text"], "")


def test_a_placeholder_keeps_its_type_and_reaches_any_golden_field(place: Place, server: LiveServer) -> None:
    place.golden(1, tags=["a", "b"], lang="en")
    place.config(
        f"""
[target]
type = "http"
url = "{server.url}/search?q={{{{ query }}}}"
headers = {{ X-Lang = "lang-{{{{ lang }}}}" }}
[target.body]
question = "{{{{ query }}}}"
k = "{{{{ k }}}}"
tags = "{{{{ tags }}}}"
note = "top {{{{ k }}}}"
none = "{{{{ folders? }}}}"
[target.response]
hits = "results[*].id"
"""
    )
    assert place.run("run", "--k", "4")[0] == 0
    sent = server.log()[-1]
    assert sent["body"] == {"question": "Question 1?", "k": 4, "tags": ["a", "b"], "note": "top 4"}
    assert sent["path"] == "/search?q=Question%201%3F"
    assert sent["headers"]["x-lang"] == "lang-en"


def test_a_missing_placeholder_is_found_before_anything_is_sent(place: Place, server: LiveServer) -> None:
    place.http(server.url, 'headers = { X-Lang = "{{ lang }}" }')
    before = server.counts()["requests"]
    code, _, err = place.run("run")
    assert code == 2
    assert "q001" in err
    assert "{{ lang }}" in err
    assert server.counts()["requests"] == before


def test_a_dry_run_shows_the_request_and_sends_nothing(place: Place, server: LiveServer) -> None:
    place.http(server.url, 'headers = { Authorization = "Bearer ${SEARCH_TOKEN}" }')
    before = server.counts()["requests"]
    code, out, _ = place.run("run", "--dry-run", SEARCH_TOKEN="tok-5f2e9a1b")
    assert code == 0
    assert out.startswith(f"POST {server.url}/search\n")
    assert '"question": "Question 1?"' in out
    assert "tok-5f2e9a1b" not in out
    assert server.counts()["requests"] == before
    assert not place.db.exists()
    code, _, err = place.run("run", "--dry-run")
    assert code == 2
    assert "SEARCH_TOKEN is not set" in err


def test_verbose_shows_request_response_and_row(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    code, _, err = place.run("run", "--limit", "1", "--verbose")
    assert code == 0
    for part in (f"POST {server.url}/search", '"took_ms": 7', '"hits_top_k": ['):
        assert part in err


@pytest.mark.parametrize(
    ("hits", "answer", "says"),
    [
        (
            "items[*].id",
            "answer",
            "target.response.hits (items[*].id) found nothing; the response is an object with results",
        ),
        ("answer", "answer", "found the text 'The answer to: Question 1?' instead of a list of objects"),
        ("results[*].id", "took_ms", "target.response.answer (took_ms) found the number 7 instead of a string"),
        (
            "results[*].id",
            "results[0]",
            "target.response.answer (results[0]) found an object with id, doc, score, text",
        ),
    ],
)
def test_a_wrong_expression_says_what_it_found_instead(
    place: Place, server: LiveServer, hits: str, answer: str, says: str
) -> None:
    place.http(server.url)
    text = (place.folder / "kbeval.toml").read_text()
    head = text[: text.index("[target.response]")]
    (place.folder / "kbeval.toml").write_text(f'{head}[target.response]\nhits = "{hits}"\nanswer = "{answer}"\n')
    code, _, err = place.run("run", "--limit", "1")
    assert code == 2
    assert says in err
    # Nothing was answered, so nothing is left behind.
    assert place.rows("SELECT COUNT(*) FROM kbeval_unfinished_runs") == [(0,)]


def test_an_expression_that_cannot_be_parsed_is_named(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    text = (place.folder / "kbeval.toml").read_text().replace('answer = "answer"', 'answer = "answer["')
    (place.folder / "kbeval.toml").write_text(text)
    code, _, err = place.run("run", "--dry-run")
    assert code == 2
    assert "target.response.answer is not a JMESPath expression" in err


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("400", {"kind": "http", "status": 400}),
        ("bare", {"kind": "http", "status": 500}),
        ("half", {"kind": "invalid_response", "status": 200}),
        ("error200", {"kind": "invalid_response", "status": 200}),
        ("wrong_types", {"kind": "invalid_response", "status": 200}),
    ],
)
def test_a_query_that_fails_is_stored_with_its_error(
    place: Place, server: LiveServer, kind: str, expected: dict[str, object]
) -> None:
    place.http(server.url)
    server.set(faults=[{"kind": kind, "queries": ["Question 3?"]}])
    code, _, err = place.run("run", "--run-id", "r", "--max-errors", "1")
    assert code == 0
    assert "1 error" in err
    rows = place.results("r")
    error = rows["q003"]["error"]
    assert {"kind": error["kind"], "status": error["status"]} == expected
    if kind == "error200":
        assert "index not ready" in error["message"]
    assert "elapsed_ms" not in rows["q003"]
    assert all("error" not in row for query, row in rows.items() if query != "q003")
    assert place.run("score", "r")[0] == 0
    ((aggregate,),) = place.rows("SELECT aggregate_json FROM eval_runs")
    numbers = json.loads(aggregate)
    assert numbers["failed_queries"] == 1
    assert numbers["error_rate"] == 0.2


def test_every_fault_of_a_server_is_stored_as_what_it_is(place: Place, server: LiveServer) -> None:
    """One query for each, in one run: those that pass are tried again, the others are errors of their queries alone.

    Refusals come first, in one burst: after refusals over a longer time kbeval sends less often, and all would wait.
    """
    lasting = {
        "slow": ("timeout", None, 1),
        "drop": ("connection", None, 2),
        "reset": ("connection", None, 2),
        "500": ("http", 500, 1),
        "502": ("http", 502, 2),
        "503": ("http", 503, 2),
        "bare": ("http", 500, 1),
        "half": ("invalid_response", 200, 1),
        "empty": ("invalid_response", 200, 1),
        "error200": ("invalid_response", 200, 1),
        "huge": ("invalid_response", 200, 1),
        "redirect_away": ("http", 307, 1),
        "wrong_types": ("invalid_response", 200, 1),
        "429": ("http", 429, 2),
    }
    passing = ("drop", "reset", "429", "502", "503", "redirect")
    queries = [*lasting, *(f"{kind} once" for kind in passing), "nothing wrong"]
    queries.sort(key=lambda one: "429" not in one)
    (place.folder / "golden.json").write_text(json.dumps([{"id": one, "query": f"{one}?"} for one in queries]))
    place.http(server.url, "attempts = 2\nmax_response_mb = 1")
    server.set(
        faults=[
            *({"kind": kind, "queries": [f"{kind}?"]} for kind in lasting),
            *({"kind": kind, "queries": [f"{kind} once?"], "first": 1} for kind in passing),
        ],
        slow_seconds=60,
        retry_after="0",
    )
    code, _, err = place.run("run", "--run-id", "r", "--max-errors", "100%", "--timeout", "4")
    assert code == 0, err
    assert f"stored run r: {len(queries)} queries, {len(lasting)} errors" in err
    rows = place.results("r")
    assert sorted(rows) == sorted(queries)
    errors = {query: row["error"] for query, row in rows.items() if "error" in row}
    assert {
        query: (error["kind"], error["status"], rows[query]["attempts"]) for query, error in errors.items()
    } == lasting
    assert all(error["message"] for error in errors.values())
    # A redirect within the server is followed, and not an attempt of its own.
    assert {kind: rows[f"{kind} once"]["attempts"] for kind in passing} == dict.fromkeys(passing, 2) | {"redirect": 1}
    assert place.run("score", "r")[0] == 0
    ((aggregate,),) = place.rows("SELECT aggregate_json FROM eval_runs")
    numbers = json.loads(aggregate)
    assert (numbers["total_queries"], numbers["failed_queries"]) == (len(queries), len(lasting))
    assert numbers["error_rate"] == pytest.approx(len(lasting) / len(queries), abs=1e-4)
    assert numbers["timeout_rate"] == pytest.approx(1 / len(queries), abs=1e-4)


def test_a_timeout_counts_as_one(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    server.set(faults=[{"kind": "slow", "queries": ["Question 3?"]}])
    code, _, _ = place.run("run", "--run-id", "r", "--max-errors", "1", "--timeout", "0.5")
    assert code == 0
    place.run("score", "r")
    ((aggregate,),) = place.rows("SELECT aggregate_json FROM eval_runs")
    assert json.loads(aggregate)["timeout_rate"] == 0.2


def test_a_failed_attempt_is_a_row_of_its_own(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    server.set(faults=[{"kind": "503", "queries": ["Question 2?"], "first": 1}])
    assert place.run("run", "--run-id", "r")[0] == 0
    found = place.rows("SELECT attempt, status, error_kind FROM kbeval_attempts WHERE query_id = 'q002' ORDER BY 1")
    assert found == [(1, 503, "http"), (2, 200, None)]
    row = place.results("r")["q002"]
    assert row["attempts"] == 2
    assert row["elapsed_ms"] < row["total_ms"]


def test_too_many_errors_stop_the_run_and_it_can_be_resumed(place: Place, server: LiveServer) -> None:
    place.golden(40)
    place.http(server.url)
    server.set(faults=[{"kind": "500", "queries": [f"Question {n}?" for n in range(11, 41)]}])
    code, out, err = place.run("run", "--run-id", "r", "--concurrency", "1")
    assert (code, out) == (2, "")
    assert "more than --max-errors 20% allows" in err
    assert "kbeval run --resume r" in err
    assert place.rows("SELECT COUNT(*) FROM eval_runs") == [(0,)]
    _, out, err = place.run("runs")
    assert "unfinished: r (live" in err
    assert "10 of 40 queries answered" in err
    code, out, err = place.run("score", "--all")
    assert (code, out) == (2, "")
    assert "holds no runs yet" in err
    stored = "run 'r' is unfinished: 10 of 40 queries answered and stored, 5 failed; continue with"
    assert f"{stored} 'kbeval run --resume r'" in err
    for words in (
        ["score", "r"],
        ["score", "latest"],
        ["show", "r"],
        ["compare", "r", "r"],
        ["gate", "r", "--min", "mrr=0"],
        ["report", "r"],
        ["judge", "r", "--judge-model", "m", "--judge-base-url", server.url],
    ):
        code, out, err = place.run(*words)
        assert (code, out) == (2, ""), words
        assert f"{stored} 'kbeval run --resume r'" in err, words
    server.set(faults=[])
    before = server.counts()["requests"]
    assert place.run("run", "--resume", "r")[0] == 0
    assert server.counts()["requests"] - before == 30
    rows = place.results("r")
    assert len(rows) == 40
    assert not any("error" in row for row in rows.values())
    assert place.run("runs")[2].count("unfinished") == 0


def test_a_resume_refuses_another_golden_file_or_target(place: Place, server: LiveServer) -> None:
    place.golden(30)
    place.http(server.url)
    server.set(faults=[{"kind": "500", "queries": [f"Question {n}?" for n in range(3, 31)]}])
    assert place.run("run", "--run-id", "r", "--concurrency", "1")[0] == 2
    before = server.counts()["requests"]
    place.golden(30, lang="en")
    code, _, err = place.run("run", "--resume", "r")
    assert code == 2
    assert "golden file" in err
    assert "has changed" in err
    (place.folder / "golden.json").rename(place.folder / "other.json")
    code, _, err = place.run("run", "--resume", "r", "--golden", "other.json")
    assert code == 2
    assert "was started with the golden file golden.json" in err
    place.golden(30)
    place.http(server.url, "method = 'PUT'")
    code, _, err = place.run("run", "--resume", "r")
    assert code == 2
    assert "the target" in err
    assert "has changed" in err
    place.http(server.url)
    code, _, err = place.run("run", "--resume", "r", "--k", "3")
    assert code == 2
    assert "--k cannot be combined with --resume" in err
    assert server.counts()["requests"] == before
    server.set(faults=[])
    assert place.run("run", "--resume", "r")[0] == 0
    code, _, err = place.run("run", "--resume", "r")
    assert code == 2
    assert "run 'r' is complete" in err


@pytest.mark.parametrize("mode", ["delete", "wal", "persist"])
def test_the_database_keeps_its_way_of_writing(place: Place, server: LiveServer, mode: str) -> None:
    place.http(server.url)
    assert place.run("run", "--run-id", "first")[0] == 0
    assert place.rows(f"PRAGMA journal_mode = {mode}") == [(mode,)]
    assert place.run("run", "--run-id", "second")[0] == 0
    # `persist` is a property of a connection, as is what kbeval does.
    assert place.rows("PRAGMA journal_mode") == [("wal" if mode == "wal" else "delete",)]
    left = {path.name for path in place.folder.iterdir() if path.name.startswith("kb.db-")}
    assert "kb.db-journal" not in left
    assert len(place.results("second")) == 5


def test_forget_deletes_an_unfinished_run(place: Place, server: LiveServer) -> None:
    place.golden(30)
    place.http(server.url)
    server.set(faults=[{"kind": "500", "queries": [f"Question {n}?" for n in range(3, 31)]}])
    assert place.run("run", "--run-id", "r", "--concurrency", "1")[0] == 2
    code, _, err = place.run("runs", "--forget", "r")
    assert code == 2
    assert "--yes" in err
    assert place.rows("SELECT COUNT(*) FROM kbeval_unfinished_runs") == [(1,)]
    # With a complete run in the database, too; by the beginning of its id, too.
    server.set(faults=[])
    assert place.run("run", "--run-id", "whole", "--limit", "1")[0] == 0
    for name in ("r", "whol", "x"):
        code, _, err = place.run("show", name)
        assert code == (0 if name == "whol" else 2)
        assert ("run 'r' is unfinished: 2 of 30 queries answered and stored" in err) is (name == "r")
        assert ("there is no run 'x'" in err) is (name == "x")
    assert place.run("runs", "--forget", "r", "--yes")[0] == 0
    assert place.rows("SELECT COUNT(*) FROM kbeval_unfinished_runs") == [(0,)]
    assert place.rows("SELECT DISTINCT run_id FROM kbeval_attempts") == [("whole",)]
    code, _, err = place.run("runs", "--forget", "r", "--yes")
    assert code == 2
    assert "no unfinished runs" in err


def test_ctrl_c_stops_sending_and_says_how_to_resume(place: Place, server: LiveServer) -> None:
    place.golden(200)
    place.http(server.url)
    server.set(delay=0.2)
    before = server.counts()["requests"]
    process = place.start("run", "--run-id", "r", "--concurrency", "4")
    while server.counts()["requests"] < before + 12:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "continue with 'kbeval run --resume r'" in err
    assert not (place.folder / "kb.db-journal").exists()
    sent = server.counts()["requests"] - before
    # What was in flight was waited for and is stored.
    assert place.rows("SELECT COUNT(*) FROM kbeval_attempts WHERE error_kind IS NULL") == [(sent,)]
    assert place.rows("SELECT COUNT(*) FROM eval_runs") == [(0,)]
    server.set(delay=0)
    assert place.run("run", "--resume", "r")[0] == 0
    assert server.counts()["requests"] - before == 200
    assert len(place.results("r")) == 200


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds child processes by /proc")
def test_if_the_process_with_the_database_ends_the_run_stops_and_can_be_resumed(
    place: Place, server: LiveServer
) -> None:
    place.golden(60)
    place.http(server.url)
    server.set(delay=0.1)
    before = server.counts()["requests"]
    process = place.start("run", "--run-id", "r", "--concurrency", "4")
    while server.counts()["requests"] < before + 12:
        time.sleep(0.02)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2, err
    assert "Traceback" not in err
    assert "cannot be written" in err
    server.set(delay=0)
    assert place.run("run", "--resume", "r")[0] == 0
    assert len(place.results("r")) == 60
    # What was in flight, or not committed, was sent again; nothing else.
    assert server.counts()["requests"] - before <= 60 + 4


def test_repetitions_know_each_other(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    code, out, _ = place.run("run", "--run-id", "r", "--repeat", "3")
    assert (code, out.split()) == (0, ["r", "r-r2", "r-r3"])
    snapshots = [place.snapshot(name) for name in out.split()]
    assert {snapshot["repetition_of"] for snapshot in snapshots} == {"r"}
    assert [snapshot["repetition"] for snapshot in snapshots] == [1, 2, 3]
    assert len({snapshot["config_hash"] for snapshot in snapshots}) == 1
    _, out, _ = place.run("runs")
    assert "repeats" in out.splitlines()[0]
    assert place.run("score", "--all")[0] == 0


def test_which_queries_are_asked(place: Place, server: LiveServer) -> None:
    place.golden(20)
    place.http(server.url)
    for name, words in {
        "limit": ["--limit", "2"],
        "only": ["--only", "q007", "--only", "q003"],
        "one": ["--sample", "5", "--seed", "1"],
        "same": ["--sample", "5", "--seed", "1"],
        "other": ["--sample", "5", "--seed", "2"],
    }.items():
        assert place.run("run", "--run-id", name, *words)[0] == 0
    asked = {name: sorted(place.results(name)) for name in ("limit", "only", "one", "same", "other")}
    assert asked["limit"] == ["q001", "q002"]
    assert asked["only"] == ["q003", "q007"]
    assert asked["one"] == asked["same"] != asked["other"]
    assert len(asked["one"]) == 5
    code, _, err = place.run("run", "--only", "q999")
    assert code == 2
    assert "no query 'q999'" in err


def test_retrieval_only_stores_no_answers(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    assert place.run("run", "--run-id", "r", "--retrieval-only")[0] == 0
    assert all(row["answer"] is None and row["hits_top_k"] for row in place.results("r").values())


def test_a_rate_is_kept_however_many_may_be_in_flight(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    assert place.run("run", "--run-id", "r", "--rate", "10", "--concurrency", "8")[0] == 0
    times = [datetime.fromisoformat(at) for (at,) in place.rows("SELECT started_at FROM kbeval_attempts ORDER BY 1")]
    assert (times[-1] - times[0]).total_seconds() >= 0.39
    assert place.run("run", "--rate", "0")[0] == 2


def test_run_ids_are_unique(place: Place, server: LiveServer) -> None:
    place.http(server.url)
    assert place.run("run", "--run-id", "r", "--limit", "1")[0] == 0
    code, _, err = place.run("run", "--run-id", "r", "--limit", "1")
    assert code == 2
    assert "already exists" in err
    code, _, err = place.run("run", "--run-id", "latest")
    assert code == 2


def test_named_targets(place: Place, server: LiveServer) -> None:
    place.config(
        f"""
[targets.staging]
type = "http"
url = "{server.url}/search"
body = {{ query = "{{{{ query }}}}" }}
response = {{ hits = "results[*].id" }}
[targets.lexical]
type = "bm25"
"""
    )
    code, _, err = place.run("run")
    assert code == 2
    assert "staging, lexical" in err
    assert place.run("run", "--target", "staging")[0] == 0
    code, _, err = place.run("run", "--target", "stagin")
    assert code == 2
    assert "staging" in err
    code, _, err = place.run("run", "--target", "lexical")
    assert code == 2
    assert "the table chunks" in err


def test_a_run_that_is_being_made_cannot_be_resumed_at_the_same_time(place: Place, server: LiveServer) -> None:
    place.golden(50)
    place.http(server.url)
    server.set(delay=0.3)
    before = server.counts()["requests"]
    process = place.start("run", "--run-id", "r", "--concurrency", "2")
    try:
        while server.counts()["requests"] < before + 3:
            time.sleep(0.05)
        code, _, err = place.run("run", "--resume", "r")
        assert code == 2
        assert "another process" in err
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def test_interrupted_repetitions_are_all_resumed(place: Place, server: LiveServer) -> None:
    place.golden(20)
    place.http(server.url)
    server.set(delay=0.1)
    process = place.start("run", "--run-id", "r", "--repeat", "3", "--concurrency", "2")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        # The database and its tables do not exist from the start.
        with contextlib.suppress(sqlite3.OperationalError):
            if place.db.exists() and ("r-r2",) in place.rows("SELECT DISTINCT run_id FROM kbeval_attempts"):
                break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "kbeval run --resume r-r2" in err
    assert place.rows("SELECT run_id FROM eval_runs") == [("r",)]
    server.set(delay=0)
    code, out, err = place.run("run", "--resume", "r-r2")
    assert code == 0, err
    assert out == "r-r2\nr-r3\n"
    assert place.rows("SELECT run_id, COUNT(*) FROM eval_query_results GROUP BY run_id") == [
        ("r", 20),
        ("r-r2", 20),
        ("r-r3", 20),
    ]
    assert {place.snapshot(name)["repetition_of"] for name in ("r", "r-r2", "r-r3")} == {"r"}
    assert len({place.snapshot(name)["config_hash"] for name in ("r", "r-r2", "r-r3")}) == 1


def test_the_version_of_the_dataset_is_that_of_git(place: Place, server: LiveServer) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *identity, *words], cwd=place.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    place.http(server.url)
    git("init", "-q")
    git("add", "golden.json")
    git("commit", "-q", "-m", "labels")
    assert place.run("run", "--run-id", "clean")[0] == 0
    dataset = place.snapshot("clean")["versions"]["dataset"]
    assert (dataset["commit"], dataset["modified"]) == (git("rev-parse", "HEAD"), False)
    assert place.rows("SELECT commit_hash FROM eval_runs") == [(dataset["commit"],)]
    place.golden(6)
    assert place.run("run", "--run-id", "changed")[0] == 0
    changed = place.snapshot("changed")["versions"]["dataset"]
    assert changed["commit"] == dataset["commit"]
    assert changed["modified"] is True
    assert changed["hash"] != dataset["hash"]
    assert place.snapshot("changed")["config_hash"] != place.snapshot("clean")["config_hash"]
