"""Writing back: one transaction, other programs at work in the same file, processes that die."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import kbeval
from kbeval.errors import DatabaseError
from kbeval.metrics.model import AggregateMetrics
from kbeval.storage.write import store_json
from tests.support.workspace import Workspace, hits, without_privileges


@pytest.fixture
def scored(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    for number in range(3):
        workspace.add_run(f"run{number}", {"q": {"hits_top_k": hits("c")}}, created_at=f"2026-01-0{number + 1}")
    return workspace


@contextmanager
def another_process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A real second process; it prints a line when it is ready."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


HOLD_LOCK = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    connection.execute("ROLLBACK")
"""


def holder_name(pid: int) -> str:
    """Linux reports which process holds a lock, other systems do not."""
    return f"process {pid}" if Path("/proc/locks").exists() else "another process"


def test_all_runs_are_stored_in_one_transaction(scored: Workspace) -> None:
    store_json(scored.db, {"run0": "{}", "run1": "{}"})
    with pytest.raises(DatabaseError, match=r"does not contain run 'gone' \(any more\); nothing was stored"):
        store_json(scored.db, {"run0": '{"new": 1}', "gone": "{}"})
    assert scored.stored("run0") == "{}"


def test_store_aggregate_fills_the_column_and_reads_back(scored: Workspace) -> None:
    aggregate = kbeval.compute_aggregate("run0", db=scored.db, golden=scored.golden)
    kbeval.store_aggregate("run0", aggregate, db=scored.db)
    assert AggregateMetrics.from_json(scored.stored("run0")) == aggregate
    assert scored.stored("run1") == ""


def test_a_held_write_lock_is_waited_for_and_then_named(scored: Workspace) -> None:
    with another_process(HOLD_LOCK, str(scored.db), "BEGIN IMMEDIATE") as holder:
        started = time.perf_counter()
        with pytest.raises(DatabaseError) as caught:
            store_json(scored.db, {"run0": "{}"}, timeout_ms=300)
        assert time.perf_counter() - started >= 0.3
        assert f"locked by {holder_name(holder.pid)}" in str(caught.value)
        assert "nothing was stored" in str(caught.value)
    store_json(scored.db, {"run0": "{}"}, timeout_ms=300)


def test_a_lock_that_is_released_in_time_does_no_harm(scored: Workspace) -> None:
    with another_process(HOLD_LOCK, str(scored.db), "BEGIN IMMEDIATE") as holder:
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        store_json(scored.db, {"run0": "{}"}, timeout_ms=10_000)
    assert scored.stored("run0") == "{}"


def test_reading_waits_for_an_exclusive_lock_and_names_its_holder(scored: Workspace) -> None:
    from kbeval.storage.sqlite import SqliteSource

    with (
        another_process(HOLD_LOCK, str(scored.db), "BEGIN EXCLUSIVE") as holder,
        pytest.raises(DatabaseError, match=f"locked by {holder_name(holder.pid)}"),
        SqliteSource(scored.db, timeout_ms=200),
    ):
        pass


KEEP_WRITING = """
    import sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    number = 0
    while True:
        with connection:
            connection.execute("INSERT INTO eval_runs VALUES (?, 's', '{}', '', NULL, '2027')", (f"new{number}",))
            for query in ("q", "r"):
                connection.execute("INSERT INTO eval_query_results VALUES (?, ?, '{}')", (f"new{number}", query))
        number += 1
        if number == 20:
            print("ready", flush=True)
        # Often enough to be writing all the time, and not so often that scoring all of it takes long.
        time.sleep(0.001 if number >= 20 else 0)
"""


def test_a_database_in_wal_mode_that_is_being_written_is_read_as_of_one_moment(scored: Workspace) -> None:
    with another_process(KEEP_WRITING, str(scored.db)):
        for _ in range(3):
            found = scored.score()
            new = [a for run_id, a in found.aggregates.items() if run_id.startswith("new")]
            assert len(new) >= 20
            # A run and its rows are written together, so no snapshot may show one without the other.
            assert {aggregate.total_queries for aggregate in new} == {2}
            store_json(scored.db, {run: a.to_json() for run, a in found.aggregates.items()}, timeout_ms=20_000)
    assert json.loads(scored.stored("run2"))["mrr"] == 1.0
    with closing(sqlite3.connect(scored.db)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


DIE_WHILE_STORING = """
    import os, signal, sys
    import kbeval.storage.write
    update = kbeval.storage.write._update
    def update_and_die(connection, run_id, text):
        update(connection, run_id, text)
        if run_id == "run1":
            os.kill(os.getpid(), signal.SIGKILL)
    kbeval.storage.write._update = update_and_die
    kbeval.storage.write.store_json(sys.argv[1], {f"run{n}": '{"half": "done"}' for n in range(3)})
"""


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_process_killed_in_mid_store_leaves_nothing_behind(scored: Workspace, journal: str) -> None:
    scored.execute(f"PRAGMA journal_mode = {journal}")
    before = [scored.stored(f"run{n}") for n in range(3)]
    code = textwrap.dedent(DIE_WHILE_STORING)
    result = subprocess.run([sys.executable, "-c", code, str(scored.db)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert [scored.stored(f"run{n}") for n in range(3)] == before
    assert scored.execute("PRAGMA integrity_check") == [("ok",)]
    store_json(scored.db, {"run0": "{}"})


def test_a_read_only_file_can_be_looked_at_but_not_stored_in(scored: Workspace, tmp_path: Path) -> None:
    scored.db.chmod(0o444)
    tmp_path.chmod(0o555)
    base = [sys.executable, "-m", "kbeval", "score", "--all", "--db", str(scored.db), "--golden", str(scored.golden)]
    try:
        stored = subprocess.run(without_privileges(*base), capture_output=True, text=True, check=False)
        looked = subprocess.run(without_privileges(*base, "--dry-run"), capture_output=True, text=True, check=False)
    finally:
        tmp_path.chmod(0o755)
    assert stored.returncode == 2
    assert "cannot be written; nothing was stored" in stored.stderr
    assert "--dry-run" in stored.stderr
    assert len(stored.stderr.splitlines()) == 1
    assert looked.returncode == 0
    assert "1.0000" in looked.stdout
