"""The other targets: the anchors API, a Python function, a program, and BM25 without a server."""

from __future__ import annotations

import ast
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kbeval.demo import make_demo
from tests.live.conftest import Place
from tests.support.live_server import LiveServer

# --- anchors -----------------------------------------------------------------------------------------


def anchors(place: Place, server: LiveServer) -> None:
    place.config(f'[target]\ntype = "anchors"\nurl = "{server.url}"\n')


def test_the_anchors_api_is_asked_and_understood(place: Place, server: LiveServer) -> None:
    entries: list[dict[str, Any]] = [
        {"id": "a", "query": "Where?", "answerable": True},
        {"id": "b", "query": "Unanswerable: who?", "answerable": False, "vaults": ["v"], "folders": ["Area"]},
    ]
    entries[0]["gold_supports"] = [{"rel_path": "Area/Note1.md", "heading_path": "A"}]
    (place.folder / "golden.json").write_text(json.dumps(entries))
    anchors(place, server)
    code, out, err = place.run("run", "--run-id", "r", "--k", "3")
    assert (code, out) == (0, "r\n"), err
    sent = {entry["body"]["question"]: entry for entry in server.log()[-2:]}
    assert sent["Where?"]["path"] == "/api/v1/ask?debug=true"
    assert sent["Where?"]["body"] == {"question": "Where?", "k": 3}
    assert sent["Unanswerable: who?"]["body"]["vaults"] == ["v"]
    assert sent["Unanswerable: who?"]["body"]["folders"] == ["Area"]
    rows = place.results("r")
    # The server returns up to twice k chunks; all are kept, with the ranks that it gave.
    assert [hit["rank"] for hit in rows["a"]["hits_top_k"]] == [1, 2, 3, 4, 5, 6]
    assert rows["a"]["abstained"] is False
    assert rows["b"]["abstained"] is True
    assert rows["a"]["latency"]["total_ms"] == 12
    assert rows["a"]["folder_selection"]["selected_folders"] == ["v/Area"]
    snapshot = place.snapshot("r")
    assert snapshot["chunker_version"] == "md@3"
    assert snapshot["versions"]["index"]["index_version"] == "i7"
    assert place.run("score", "r")[0] == 0
    ((aggregate,),) = place.rows("SELECT aggregate_json FROM eval_runs")
    numbers = json.loads(aggregate)
    assert numbers["support_mrr"] == 1.0
    assert numbers["attribution_hit_rate"] == 1.0
    assert numbers["abstention_accuracy"] == 1.0
    assert place.run("export", "anchors", "r", "out")[0] == 0
    assert len((place.folder / "out" / "results.jsonl").read_text().splitlines()) == 2


def test_a_server_that_is_not_healthy_is_not_asked(place: Place, server: LiveServer) -> None:
    anchors(place, server)
    server.set(unhealthy=True)
    before = server.counts()["requests"]
    code, _, err = place.run("run")
    assert code == 2
    assert "not healthy: HTTP 503" in err
    assert server.counts()["requests"] == before
    assert place.rows("SELECT COUNT(*) FROM kbeval_unfinished_runs") == [(0,)]


def test_a_server_that_is_not_healthy_any_more_is_a_warning_that_stays(place: Place) -> None:
    with LiveServer(unhealthy_after=3) as server:
        place.http(server.url, 'health = "/api/health"')
        code, _, err = place.run("run", "--run-id", "r")
        assert code == 0, err
    assert "warning: run r: the target was not healthy after the last query: HTTP 503" in err
    assert "not healthy after the last query" in place.snapshot("r")["kbeval"]["warnings"][0]
    assert "not healthy after the last query" in place.run("score", "r")[2]


def test_an_index_that_is_down_is_not_a_refusal(place: Place, server: LiveServer) -> None:
    entries = [{"id": f"q{n}", "query": f"Question {n}?", "answerable": n > 2} for n in range(1, 6)]
    (place.folder / "golden.json").write_text(json.dumps(entries))
    anchors(place, server)
    assert place.run("run", "--run-id", "good", "--suite", "earlier")[0] == 0
    server.set(index_down=True)
    said = "run r: every answer is a refusal with nothing retrieved; the system's index may have been down"
    code, _, err = place.run("run", "--run-id", "r")
    assert code == 0
    assert said in err
    assert "every answer is a refusal" in place.snapshot("r")["kbeval"]["warnings"][0]
    # Every refusal was right where nothing can be answered: no command shows that number without the doubt.
    for words in (
        ["score", "good", "r"],
        ["show", "r"],
        ["compare", "good", "r"],
        ["runs"],
        ["history", "abstention_accuracy"],
    ):
        code, out, err = place.run(*words)
        assert code == 0, words
        assert said in err, words
    ((aggregate,),) = place.rows("SELECT aggregate_json FROM eval_runs WHERE run_id = 'r'")
    numbers = json.loads(aggregate)
    assert (numbers["empty_result_rate"], numbers["abstention_accuracy"]) == (1.0, 1.0)
    for more in ([], ["--baseline", "good"]):
        code, out, err = place.run("gate", "r", "--min", "abstention_accuracy=0.9", *more)
        assert code == 1, more
        assert "1 of 2 gates failed" in out
        assert "FAIL  the system answers" in out
        assert said in err
    code, out, _ = place.run("gate", "r", "--min", "abstention_accuracy=0.9", "--format", "json")
    assert (code, json.loads(out)["pass"]) == (1, False)
    assert place.run("report", "r")[0] == 0
    assert "every answer is a refusal" in (place.folder / "runs" / "r" / "report.html").read_text()
    # A run in which one query is answered has no such warning, nor is one an outage in which nothing is answerable.
    server.set(
        answers={"Question 1?": {"answer": "Yes", "debug": {"retrieved_chunks": [{"chunk_id": "c", "rank": 1}]}}}
    )
    code, _, err = place.run("run", "--run-id", "r2")
    assert "every answer is a refusal" not in err
    server.set(answers={})
    code, _, err = place.run("run", "--run-id", "r3", "--limit", "2")
    assert "every answer is a refusal" in err
    assert place.run("gate", "r3", "--min", "abstention_accuracy=0.9")[0] == 0


def test_a_server_that_dies_half_way_leaves_a_run_to_resume(place: Place) -> None:
    place.golden(60)
    with LiveServer(die_after=30) as dying:
        place.http(dying.url, "attempts = 2\ndeadline = 5")
        port = dying.port
        code, out, err = place.run("run", "--run-id", "r", "--concurrency", "4")
        assert (code, out) == (2, "")
        assert "connection" in err
        assert "kbeval run --resume r" in err
        assert place.rows("SELECT COUNT(*) FROM eval_runs") == [(0,)]
        assert place.run("score", "--all")[1] == ""
        (answered,) = place.rows("SELECT COUNT(*) FROM kbeval_attempts WHERE error_kind IS NULL")[0]
        assert 26 <= answered <= 30
    code, _, err = place.run("run", "--resume", "r")
    assert code == 2
    assert "not healthy: no connection" in err
    assert place.rows("SELECT COUNT(*) FROM kbeval_unfinished_runs") == [(1,)]
    with LiveServer(port=port) as again:
        assert place.run("run", "--resume", "r")[0] == 0
        assert again.counts()["requests"] == 60 - answered
    assert len(place.results("r")) == 60


# --- programs ----------------------------------------------------------------------------------------

FUNCTIONS = """
import asyncio, os, subprocess, sys, time

def plain(query, entry):
    return {"hits_top_k": ["c1", {"chunk_id": "c2", "score": 0.5}], "answer": "yes", "seen": entry["id"]}

async def later(query, entry, *, k, mode):
    await asyncio.sleep(0.01)
    return {"hits_top_k": [{"chunk_id": f"c{n}"} for n in range(k)], "answer": {"answer": mode, "grounded": True}}

def failing(query, entry):
    if "2" in query:
        raise RuntimeError("no index for token-abcdef123456")
    if "3" in query:
        return ["not", "an", "object"]
    if "4" in query:
        time.sleep(3)
    if "5" in query:
        return {"error": "model overloaded", "hits_top_k": ["c1"]}
    return {"hits_top_k": []}

def printing(query, entry):
    print("printed")
    subprocess.run(["echo", "by a child"], check=True)
    os.write(1, b"without buffer\\n")
    if "2" in query:
        sys.exit("gone")
    return {"hits_top_k": []}

not_a_function = 3
print("loaded")
"""


def python(place: Place, function: str, more: str = "") -> None:
    (place.folder / "searching.py").write_text(FUNCTIONS)
    place.config(f'[target]\ntype = "python"\nfunction = "searching:{function}"\n{more}')


def test_a_plain_function(place: Place) -> None:
    python(place, "plain")
    assert place.run("run", "--run-id", "r")[0] == 0
    row = place.results("r")["q004"]
    assert row["hits_top_k"] == [{"rank": 1, "chunk_id": "c1"}, {"rank": 2, "chunk_id": "c2", "score": 0.5}]
    assert row["answer"] == {"answer": "yes"}
    assert row["seen"] == "q004"


def test_an_async_function_takes_k_and_mode(place: Place) -> None:
    python(place, "later", 'mode = "dense"')
    assert place.run("run", "--run-id", "r", "--k", "3")[0] == 0
    row = place.results("r")["q001"]
    assert len(row["hits_top_k"]) == 3
    assert row["mode"] == row["answer"]["answer"] == "dense"


def test_errors_of_a_function_are_errors_of_its_queries(place: Place) -> None:
    python(place, "failing", "timeout = 0.5")
    code, _, _ = place.run("run", "--run-id", "r", "--max-errors", "100%")
    assert code == 0
    rows = place.results("r")
    kinds = {query: row["error"]["kind"] for query, row in rows.items() if "error" in row}
    assert kinds == {"q002": "target", "q003": "invalid_response", "q004": "timeout", "q005": "target"}
    assert "RuntimeError" in rows["q002"]["error"]["message"]
    # What was retrieved before the error counts.
    assert rows["q005"]["hits_top_k"] == [{"rank": 1, "chunk_id": "c1"}]
    assert rows["q005"]["error"]["message"] == "model overloaded"


def test_what_a_function_prints_is_not_data_and_it_cannot_end_kbeval(place: Place) -> None:
    python(place, "printing")
    code, out, err = place.run_apart("run", "--run-id", "r")
    assert (code, out) == (0, "r\n"), err
    for said in ("loaded", "printed", "by a child", "without buffer"):
        assert f"{said}\n" in err
    rows = place.results("r")
    assert {query: row["error"]["message"] for query, row in rows.items() if "error" in row} == {
        "q002": "SystemExit: gone"
    }
    code, out, err = place.run_apart("run", "--dry-run")
    assert code == 0
    assert out.startswith("searching:printing('Question 1?'")
    assert "loaded" not in out


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("missing", "AttributeError"),
        ("not_a_function", "is not a function"),
    ],
)
def test_a_function_that_cannot_be_called_is_named(place: Place, function: str, says: str) -> None:
    python(place, function)
    code, _, err = place.run("run")
    assert code == 2
    assert says in err


PROGRAM = """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if "2" in asked["query"]:
        print("not json", flush=True)
    elif "3" in asked["query"]:
        sys.exit(3)
    elif "4" in asked["query"]:
        time.sleep(5)
    elif "5" in asked["query"]:
        print(json.dumps({"query_id": "other", "hits_top_k": []}), flush=True)
    else:
        print(json.dumps({"hits_top_k": [{"chunk_id": f"c{asked['k']}"}], "answer": asked["query"]}), flush=True)
"""


def test_a_program_answers_by_lines_and_is_started_again_when_it_fails(place: Place) -> None:
    place.golden(8)
    (place.folder / "program.py").write_text(PROGRAM)
    place.config('[target]\ntype = "command"\ncommand = ["python3", "program.py"]\ntimeout = 1.5\n')
    code, _, err = place.run("run", "--run-id", "r", "--max-errors", "100%", "--k", "7")
    assert code == 0, err
    rows = place.results("r")
    kinds = {query: row["error"]["kind"] for query, row in rows.items() if "error" in row}
    assert kinds == {"q002": "invalid_response", "q003": "target", "q004": "timeout", "q005": "invalid_response"}
    assert "exit code 3" in rows["q003"]["error"]["message"]
    for query in ("q001", "q006", "q007", "q008"):
        assert rows[query]["hits_top_k"] == [{"rank": 1, "chunk_id": "c7"}]
        # The answer is that of this query, not a late one of another.
        assert rows[query]["answer"]["answer"] == rows[query]["query"]


def test_a_function_gets_the_entry_as_it_is_written(place: Place) -> None:
    """With fields of your own, and whole numbers as such."""
    entry = {"id": "q1", "query": "a", "tenant": "acme", "expected_chunk_ids": ["c1"], "relevance": {"c1": 2}}
    span = {"doc_id": "d", "kind": "line", "start": 3, "end": 4}
    (place.folder / "golden.json").write_text(json.dumps([{**entry, "expected_spans": [span]}]))
    (place.folder / "echo.py").write_text("def answer(query, entry):\n    return {'answer': repr(entry)}\n")
    place.config('[target]\ntype = "python"\nfunction = "echo:answer"\n')
    assert place.run("run", "--run-id", "r")[0] == 0
    seen = ast.literal_eval(place.results("r")["q1"]["answer"]["answer"])
    assert seen == {**entry, "expected_spans": [span]}
    assert [type(seen["expected_spans"][0]["start"]), type(seen["relevance"]["c1"])] == [int, int]


CHATTING = """
import json, sys
if sys.argv[1] == "greets":
    print("Loading model ...", flush=True)
for number, line in enumerate(sys.stdin):
    asked = json.loads(line)
    if sys.argv[1] == "remarks" and number == 1:
        print("took a while", flush=True)
    found = json.dumps({"hits_top_k": [{"chunk_id": f"of {asked['query_id']}"}]})
    print(*([found] * (2 if sys.argv[1] == "repeats" else 1)), sep="\\n", flush=True)
"""


@pytest.mark.parametrize(
    ("habit", "says", "answered"),
    [("greets", "'Loading model ...'", 0), ("remarks", "'took a while'", 3), ("repeats", "nothing had asked for", 3)],
)
def test_what_a_program_writes_besides_answers_never_moves_an_answer_to_another_query(
    place: Place, habit: str, says: str, answered: int
) -> None:
    place.golden(6)
    (place.folder / "program.py").write_text(CHATTING)
    words = f'["python3", "program.py", "{habit}"]'
    place.config(f'[target]\ntype = "command"\ncommand = {words}\nconcurrency = 1\n')
    code, _, err = place.run("run", "--run-id", "r", "--max-errors", "100%")
    assert code == 0, err
    rows = place.results("r")
    right = [query for query, row in rows.items() if [hit["chunk_id"] for hit in row["hits_top_k"]] == [f"of {query}"]]
    wrong = {query: row["error"]["message"] for query, row in rows.items() if "error" in row}
    assert sorted([*right, *wrong]) == sorted(rows)
    assert all(says in message and "standard output" in message for message in wrong.values())
    assert len(right) == answered


def test_a_program_that_cannot_be_started_is_not_healthy(place: Place) -> None:
    place.config('[target]\ntype = "command"\ncommand = "./no-such-program --now"\n')
    code, _, err = place.run("run")
    assert code == 2
    assert "cannot be started" in err


# --- bm25 --------------------------------------------------------------------------------------------


@pytest.fixture
def demo(tmp_path: Path) -> Place:
    make_demo(tmp_path / "demo")
    return Place(tmp_path / "demo")


def test_bm25_finds_what_the_labels_say(demo: Place) -> None:
    (demo.folder / "kbeval.toml").write_text(
        'db = "kb.db"\ngolden = "golden.yaml"\n[target]\ntype = "bm25"\nchunker_version = "lines@1"\n'
    )
    code, out, err = demo.run("run", "--run-id", "r", "--suite", "nightly")
    assert (code, out) == (0, "r\n"), err
    rows = demo.results("r")
    assert len(rows) == 25
    hits = rows["g001"]["hits_top_k"]
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert {hit["chunker_version"] for hit in hits} == {"lines@1"}
    assert demo.run("score", "r")[0] == 0
    ((aggregate,),) = demo.rows("SELECT aggregate_json FROM eval_runs WHERE run_id = 'r'")
    assert json.loads(aggregate)["hit_at_k"]["5"] >= 0.8
    # The index was made in memory: the database has no full-text table, and the first hit is SQLite's own first.
    connection = sqlite3.connect(demo.db)
    try:
        assert connection.execute("SELECT COUNT(*) FROM sqlite_master WHERE sql LIKE '%fts5%'").fetchall() == [(0,)]
        connection.execute(
            "CREATE VIRTUAL TABLE temp.own USING fts5(text, id UNINDEXED, tokenize = 'porter unicode61')"
        )
        connection.execute("INSERT INTO own SELECT text, chunk_id FROM chunks WHERE chunker_version = 'lines@1'")
        ((best,),) = connection.execute(
            "SELECT id FROM own WHERE own MATCH"
            " 'locked OR account OR wrong OR passwords OR how OR long OR is OR my OR after'"
            " ORDER BY rank LIMIT 1"
        ).fetchall()
    finally:
        connection.close()
    assert hits[0]["chunk_id"] == best


def test_bm25_takes_any_text_as_words(demo: Place) -> None:
    odd = ['"', "a AND (b", "NEAR/3 *", "text: x", "", "🙂", "l'été NOT -x", "'; DROP TABLE chunks; --"]
    entries = [{"id": f"o{n}", "query": text or "?"} for n, text in enumerate(odd)]
    (demo.folder / "odd.json").write_text(json.dumps(entries))
    code, _, err = demo.run("run", "--target", "bm25", "--run-id", "r", "--golden", "odd.json")
    assert code == 0, err
    assert not any("error" in row for row in demo.results("r").values())


def test_bm25_needs_only_the_columns_that_it_searches(demo: Place) -> None:
    def keep(*columns: str) -> None:
        with closing(sqlite3.connect(demo.db)) as connection, connection:
            connection.execute("ALTER TABLE chunks RENAME TO all_chunks")
            connection.execute(f"CREATE TABLE chunks AS SELECT {', '.join(columns)} FROM all_chunks")
            connection.execute("DROP TABLE all_chunks")

    command = ("run", "--target", "bm25", "--golden", "golden.yaml", "--limit", "3")
    keep("chunk_id", "doc_id", "source_spans_json", "chunker_version", "text")
    code, _, err = demo.run(*command, "--run-id", "r")
    assert code == 0, err
    assert "searching the chunks of headings@2; none has a date; others: lines@1" in err
    hit = demo.results("r")["g001"]["hits_top_k"][0]
    assert hit["source_spans"]
    assert hit["heading_path"] == []
    keep("chunk_id", "doc_id", "source_spans_json", "chunker_version")
    code, _, err = demo.run(*command, "--run-id", "s")
    assert code == 2
    assert "kb.db has no column text, which a bm25 target needs" in err


def test_bm25_needs_chunks(place: Place) -> None:
    code, _, err = place.run("run", "--target", "bm25", "--db", "new.db", "--golden", "golden.json")
    assert code == 2
    assert "there is no database new.db" in err
    assert "chunks" in err
    assert not (place.folder / "new.db").exists()
    (place.folder / "new.db").touch()
    code, _, err = place.run("run", "--target", "bm25", "--db", "new.db", "--golden", "golden.json")
    assert code == 2
    assert "the table chunks of new.db is empty" in err
