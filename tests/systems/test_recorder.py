"""The recorder: a run is stored whole or not at all, and what is wrong is said with its query and its field."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbeval
from kbeval.errors import DatabaseError, UsageError


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT run_id || '/' || query_id, result_json FROM eval_query_results")
        return {name: json.loads(text) for name, text in found}


def runs_of(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT run_id, suite, config_snapshot_json, aggregate_json, commit_hash, created_at FROM eval_runs"
        ).fetchall()


def test_a_recorded_run_is_stored_in_the_form_that_is_scored(tmp_path: Path) -> None:
    db, golden = tmp_path / "new.db", tmp_path / "golden.yaml"
    moment = datetime(2026, 3, 1, 2, 10, tzinfo=UTC)
    config = {"chunker_version": "md@1", "when": moment}
    with kbeval.record(db, suite="nightly", config=config, run_id="r", created_at=moment, commit="abc") as run:
        run.add(
            "q1",
            query="How long?",
            hits=[
                {"chunk_id": "c1", "doc_id": 7, "score": np.float32(0.5), "vector": np.arange(2), "gone": None},
                {"chunk_id": "c2", "source_spans": [{"kind": "line", "start": 1, "end": 2}]},
            ],
            answer="Fifteen minutes.",
            grounded=True,
            citations=["c1"],
            elapsed_ms=12,
            tokens={"prompt": 3, "completion": 4},
            cost_usd=0.25,
            scores={"own.tone": 0.5},
            model="small-1",
        )
        run.add(2, hits=["c2", "c1"], answer={"answer": "", "grounded": False})
        run.add("q3", error=TimeoutError("timed out"))
        assert len(run) == 3
        assert not db.exists(), "nothing is written before the end"
    found = rows_of(db)
    assert found["r/q1"] == {
        "query_id": "q1",
        "query": "How long?",
        "hits_top_k": [
            {"rank": 1, "chunk_id": "c1", "doc_id": "7", "score": 0.5, "vector": [0, 1]},
            {"rank": 2, "chunk_id": "c2", "source_spans": [{"kind": "line", "start": 1, "end": 2}]},
        ],
        "answer": {"answer": "Fifteen minutes.", "grounded": True, "citations": [{"citation": {"chunk_id": "c1"}}]},
        "elapsed_ms": 12,
        "cost_usd": 0.25,
        "tokens": {"prompt": 3, "completion": 4},
        "scores": {"own.tone": 0.5},
        "model": "small-1",
    }
    assert [hit["chunk_id"] for hit in found["r/2"]["hits_top_k"]] == ["c2", "c1"]
    ((run_id, suite, stored, aggregate, commit, created),) = runs_of(db)
    assert (run_id, suite, aggregate, commit, created) == ("r", "nightly", "", "abc", "2026-03-01T02:10:00.000000Z")
    assert json.loads(stored)["when"] == "2026-03-01T02:10:00+00:00"
    golden.write_text(
        "- {id: q1, query: How long?, expected_chunk_ids: [c2]}\n- {id: '2', query: x, expected_chunk_ids: [c2]}\n"
    )
    aggregate_of = kbeval.compute_aggregate("r", db=db, golden=golden)
    assert aggregate_of.mrr == 0.75
    assert aggregate_of.failed_queries == 1
    assert aggregate_of.value("timeout_rate") == 0.3333
    assert aggregate_of.value("own.tone") == 0.5
    assert aggregate_of.counts("own.tone") == {"scored": 1, "not_applicable": 2}
    assert aggregate_of.value("tokens_total") == 7


# Neither a time nor anything that could be one.
ODD_MOMENTS: list[Any] = [
    *(0, 0.0, "", "yesterday", 1772370000, float("nan"), [], {}, b"2026-03-01", True, date(2026, 3, 1)),
    *(
        datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
        datetime(7, 1, 1, tzinfo=UTC),
    ),
    *("9999-99-99", np.datetime64("2026-03-01"), "2026-03-01T25:00"),
]


def _record(db: Path, *rows: tuple[Any, dict[str, Any]], error: type[Exception] | None = None) -> kbeval.Recorder:
    with kbeval.record(db) as run:
        for query_id, fields in rows:
            run.add(query_id, **fields)
        if error is not None:
            raise error
    return run


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hits": "c1"}, "hits is text"),
    ({"hist": ["c1"]}, "did you mean hits="),
    ({"half \ud800": 1}, "half a character"),
    ({"hits": [3.5]}, r"hits\[0\] is a number"),
    ({"hits": [{"id": "c1"}]}, r"hits\[0\] has no chunk_id and no doc_id \(it has id\)"),
    ({"hits": [{"chunk_id": ""}]}, r"hits\[0\].chunk_id is empty"),
    ({"hits": [{"chunk_id": ["c"]}]}, r"hits\[0\].chunk_id is a list"),
    ({"hits": ["a", {"chunk_id": "c", "rank": 0}]}, "1 of 2 have a rank"),
    ({"hits": [{"chunk_id": "c", "rank": 1.5}]}, r"hits\[0\].rank is 1.5"),
    ({"hits": [{"chunk_id": "c", "score": "high"}]}, r"hits\[0\].score is text"),
    ({"hits": [{"chunk_id": "c", "score": float("nan")}]}, r"hits\[0\].score is nan"),
    ({"hits": [{"chunk_id": "c", "source_spans": {"kind": "line"}}]}, "source_spans is a mapping"),
    (
        {"hits": [{"chunk_id": "c", "source_spans": [{"kind": "line", "start": 9, "end": 1}]}]},
        "end 1 is before start 9",
    ),
    ({"hits": [{"chunk_id": "c", "source_spans": [{"kind": "lines", "start": 1, "end": 2}]}]}, "did you mean 'line'"),
    ({"answer": 3}, "answer is a number"),
    ({"answer": {"anwser": "x"}}, "did you mean 'answer'"),
    ({"answer": "x", "grounded": "yes"}, "grounded is text"),
    ({"answer": "x", "citations": "c1"}, "citations is text"),
    ({"abstained": 1}, "abstained is 1"),
    ({"elapsed_ms": -1}, "elapsed_ms is -1"),
    ({"tokens": "many"}, "tokens is 'many'"),
    ({"tokens": {"in": 3}}, "tokens has no total"),
    ({"scores": {"Tone": 1}}, "'Tone' is not a valid name for a score"),
    ({"scores": {"mrr.x": 1}}, "is reserved"),
    ({"scores": {"own.tone": "good"}}, "is text, not a number"),
    ({"extra": object()}, "extra is of type object"),
    ({"extra": {1: 2}}, "extra has a key that is a number"),
    ({"extra": "half \ud800"}, "half a character"),
    ({"hits_top_k": []}, "passed as hits="),
]


def test_what_is_wrong_is_reported_with_query_and_field_and_nothing_is_stored(tmp_path: Path) -> None:
    db = tmp_path / "new.db"
    for fields, message in WRONG:
        with pytest.raises(UsageError, match=message) as caught:
            _record(db, ("fine", {}), ("q7", fields))
        assert "query 'q7'" in str(caught.value), fields
    for query_id in ("", None, 1.5, "nul \x00"):
        with pytest.raises(UsageError, match="a query id is"):
            _record(db, (query_id, {}))
    with pytest.raises(UsageError, match="query 'q1': was already added"):
        _record(db, ("q1", {}), ("q1", {}))
    with pytest.raises(ZeroDivisionError):
        _record(db, ("q1", {}), error=ZeroDivisionError)
    assert not db.exists()
    run = _record(tmp_path / "other.db", ("q1", {}))
    with pytest.raises(UsageError, match="inside the 'with' block"):
        run.add("q1")
    wrong_options: tuple[tuple[dict[str, Any], str], ...] = (
        ({"suite": ""}, "suite is ''"),
        ({"config": [1]}, "config is of type list"),
        ({"config": {"a": {1, 2}}}, "config.a is of type set"),
        ({"run_id": "latest~1"}, "is reserved"),
        ({"replace": "no"}, "replace is 'no'"),
        *(({"created_at": value}, "created_at is") for value in ODD_MOMENTS),
    )
    for options, message in wrong_options:
        with pytest.raises(UsageError, match=message):
            kbeval.record(db, **options)
    for path in (None, 7, "", b"kb.db"):
        with pytest.raises(UsageError, match="it must be the path of a SQLite file"):
            kbeval.record(path)  # type: ignore[arg-type]


def test_the_time_of_a_run_may_be_text(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    for created in ("2026-03-01T14:00:00+02:00", datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01 12:00"):
        with kbeval.record(db, created_at=created) as run:
            run.add("q1")
    assert {created for *_, created in runs_of(db)} == {"2026-03-01T12:00:00.000000Z"}


def test_ids_are_free_or_refused_before_the_run_starts(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    moment = datetime(2026, 3, 1, 2, 10, tzinfo=UTC)
    names = []
    for _ in range(3):
        with kbeval.record(db, created_at=moment) as run:
            run.add("q1")
        names.append(run.run_id)
    assert names == ["20260301_021000", "20260301_021000-2", "20260301_021000-3"]
    # Two that are open at once do not know of each other.
    with kbeval.record(db, created_at=moment) as one, kbeval.record(db, created_at=moment) as other:
        assert one.run_id == other.run_id
    assert one.run_id != other.run_id
    with pytest.raises(UsageError, match="already contains run '20260301_021000'"), kbeval.record(db, run_id=names[0]):
        pytest.fail("not reached")
    with kbeval.record(db, run_id=names[0], replace=True) as run:
        run.add("q9")
    assert f"{names[0]}/q9" in rows_of(db)
    assert f"{names[0]}/q1" not in rows_of(db)


def test_an_invalid_database_is_rejected_before_the_run_starts(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database, but long enough to look like something")
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE t (x)")
    for path, message in (
        (tmp_path, "is a directory"),
        (text, "is not a SQLite database"),
        (other, "has no table 'eval_runs'"),
        (tmp_path / "no" / "kb.db", "there is no folder"),
    ):
        with pytest.raises((DatabaseError, UsageError), match=message), kbeval.record(path):
            pytest.fail("not reached")
    assert text.read_text().startswith("not a database")


def _add_some(run: kbeval.Recorder, low: int) -> None:
    for number in range(low, low + 50):
        run.add(number, hits=["c"])


def test_threads_may_add_at_once(tmp_path: Path) -> None:
    with kbeval.record(tmp_path / "kb.db", run_id="r") as run:
        threads = [threading.Thread(target=_add_some, args=(run, low)) for low in range(0, 400, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(rows_of(tmp_path / "kb.db")) == 400


SLOW = """
import sys, kbeval
with kbeval.record(sys.argv[1], run_id="second") as run:
    for n in range(2000):
        run.add(n, hits=["c"])
    print("begun", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_process_leaves_nothing_half_written(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    with kbeval.record(db, run_id="first") as run:
        run.add("q1")
    before = db.read_bytes()
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(db)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGKILL)
    assert db.read_bytes() == before
    assert [name for name, *_ in runs_of(db)] == ["first"]


def test_a_table_without_commit_hash_will_do(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(
            "CREATE TABLE eval_runs (run_id TEXT, suite, config_snapshot_json, aggregate_json, created_at)"
        )
        connection.execute("CREATE TABLE eval_query_results (run_id TEXT, query_id TEXT, result_json TEXT)")
    with kbeval.record(db, run_id="r") as run:
        run.add("q1")
    assert list(rows_of(db)) == ["r/q1"]
