"""The process that opens databases: it never outlives its use, and however it ends, the database stays intact."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

import kbeval
from kbeval.database import process as processes
from kbeval.database.connection import Database
from kbeval.database.process import SPARE, Process, ProcessEndedError
from kbeval.database.streams import _USED, failure_behind
from kbeval.errors import DatabaseError
from kbeval.storage.write import store_json
from tests.support.examples import sized
from tests.support.workspace import Workspace, hits

TEXTS = ["", "plain", "Ωδ", "a\0b", "x" * 100_000]


@pytest.fixture
def one_run(workspace: Workspace) -> Workspace:
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    return workspace


@pytest.fixture
def _none_kept() -> Iterator[None]:
    """The situation of a program that only calls the API."""
    SPARE.end()
    yield
    SPARE.prepare()


def children() -> set[int]:
    """The processes that this one started and has not waited for, zombies among them."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(map(int, found.split()))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(pid: int, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_running(pid)


# --- rows -----------------------------------------------------------------------------------------------


def numbers(folder: Path, count: int) -> Path:
    path = folder / "numbers.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (n INTEGER, text TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", ((n, TEXTS[n % len(TEXTS)]) for n in range(count)))
    return path


@pytest.mark.parametrize("shares_memory", [True, False])
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_rows_arrive_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares_memory: bool, batch: int
) -> None:
    SPARE.end()
    if not shares_memory:
        monkeypatch.setattr(processes, "_shared_memory", lambda: None)
    path = numbers(tmp_path, 200)
    with duckdb.connect() as engine, Database(path) as database:
        database.open()
        columns = [("n", "integer"), ("text", "text")]
        engine.register("t", database.relation("SELECT n, text FROM t", columns, batch))
        # As often as it is asked for, also in the middle of another reading.
        for _ in range(2):
            found = engine.execute("SELECT n, text FROM t ORDER BY n").fetchall()
            assert found == [(n, TEXTS[n % len(TEXTS)]) for n in range(200)]
        assert engine.execute("SELECT COUNT(*) FROM t AS a JOIN t AS b USING (n)").fetchall() == [(200,)]
        assert len(engine.execute("FROM t LIMIT 3").fetchall()) == 3
        assert engine.execute("SELECT COUNT(*) FROM t WHERE n < 0").fetchall() == [(0,)]
        engine.unregister("t")
    assert not _USED
    SPARE.prepare()


def test_several_threads_read_and_ask_at_the_same_time(tmp_path: Path) -> None:
    path = numbers(tmp_path, 300)
    wrong: list[Any] = []
    with Database(path) as database:
        database.open()

        def read() -> None:
            with duckdb.connect() as engine:
                for _ in range(3):
                    engine.register(
                        "t", database.relation("SELECT n, text FROM t", [("n", "integer"), ("text", "text")], 5)
                    )
                    found = engine.execute("SELECT SUM(n), SUM(LENGTH(text)) FROM t").fetchall()
                    if found != [(44_850, 60 * (5 + 2 + 3 + 100_000))]:
                        wrong.append(found)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(50):
            assert database.execute("SELECT COUNT(*) FROM t").rows == [(300,)]
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("shares_memory", [True, False])
def test_rows_may_be_read_before_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares_memory: bool
) -> None:
    SPARE.end()
    if not shares_memory:
        monkeypatch.setattr(processes, "_shared_memory", lambda: None)
    wanted = [(n, TEXTS[n % len(TEXTS)]) for n in range(200)]
    with duckdb.connect() as engine, Database(numbers(tmp_path, 200)) as database:
        database.open()
        columns = [("n", "integer"), ("text", "text")]
        begun = [database.relation("SELECT n, text FROM t", columns, 7) for _ in range(3)]
        for relation in begun:
            relation.begin()
        time.sleep(0.1)
        engine.register("a", begun[0])
        assert engine.execute("FROM a ORDER BY n").fetchall() == wanted
        # Again, from the start.
        assert engine.execute("FROM a ORDER BY n").fetchall() == wanted
        # In the middle of another reading, and not to the end.
        engine.register("b", begun[1])
        engine.register("plain", database.relation("SELECT n, text FROM t", columns, 3))
        assert engine.execute("SELECT COUNT(*) FROM plain JOIN b USING (n)").fetchall() == [(200,)]
        engine.unregister("a")
        engine.unregister("b")
        engine.unregister("plain")
        # One whose rows are never requested is dropped.
        number = begun[2]._begun
        begun.clear()
        del relation
        assert list(database.process.dropped) == [number]
        assert database.execute("SELECT COUNT(*) FROM t").rows == [(200,)]
        assert not database.process.dropped
    assert not _USED
    SPARE.prepare()


def test_rows_that_were_read_early_are_not_those_of_an_earlier_opening(tmp_path: Path) -> None:
    path = numbers(tmp_path, 200)
    with duckdb.connect() as engine, Database(path) as database:
        database.open()
        relation = database.relation("SELECT n FROM t", [("n", "integer")], 20)
        relation.begin()
        database.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM t WHERE n >= 150")
        database.open()
        engine.register("t", relation)
        assert engine.execute("SELECT COUNT(*) FROM t").fetchall() == [(150,)]


def test_a_statement_that_fails_early_says_why_when_it_is_needed(tmp_path: Path) -> None:
    with duckdb.connect() as engine, Database(numbers(tmp_path, 3)) as database:
        database.open()
        relation = database.relation("SELECT x FROM nope", [("x", "text")], 5)
        relation.begin()
        engine.register("t", relation)
        with pytest.raises(duckdb.Error) as caught:
            engine.execute("FROM t").fetchall()
        assert "no such table: nope" in str(failure_behind(caught.value))


def test_a_statement_that_fails_says_why_through_the_engine(tmp_path: Path) -> None:
    with duckdb.connect() as engine, Database(numbers(tmp_path, 3)) as database:
        database.open()
        engine.register("t", database.relation("SELECT x FROM nope", [("x", "text")], 5))
        with pytest.raises(duckdb.Error) as caught:
            engine.execute("FROM t").fetchall()
        assert "no such table: nope" in str(failure_behind(caught.value))


# --- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_none_kept")
def test_nothing_is_left_running_after_a_call(one_run: Workspace) -> None:
    before = children()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        kbeval.score_runs(one_run.db, one_run.golden)
        kbeval.compute_aggregate("run", db=one_run.db, golden=one_run.golden)
        with pytest.raises(kbeval.KbevalError):
            kbeval.compute_aggregate("nope", db=one_run.db, golden=one_run.golden)
    assert children() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_a_process_that_is_killed_is_an_error_of_one_line(one_run: Workspace) -> None:
    database = Database(one_run.db)
    database.open()
    os.kill(database.process.pid, signal.SIGKILL)
    with pytest.raises(DatabaseError, match="ended by signal 9") as caught:
        database.execute("SELECT 1")
    assert "\n" not in str(caught.value)
    assert one_run.aggregate()["mrr"] == 1.0


def test_a_file_that_another_program_cuts_while_it_is_read_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (text)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 100_000,)] * 300)
    with duckdb.connect() as engine, Database(path) as database:
        database.open()
        engine.register("t", database.relation("SELECT text FROM t", [("text", "text")], 1))
        os.truncate(path, 1_000_000)
        with pytest.raises(duckdb.Error) as caught:
            engine.execute("SELECT SUM(LENGTH(text)) FROM t").fetchall()
        message = str(failure_behind(caught.value))
    assert "the file was shortened" in message or "malformed" in message
    assert "\n" not in message


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_killing_it_at_any_moment_leaves_all_or_nothing(
    one_run: Workspace, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    for number in range(20):
        one_run.add_run(f"more{number}", {"q": {}})
    one_run.execute(f"PRAGMA journal_mode = {mode}")
    ask = Process.ask_plainly
    chance = random.Random(1)
    left = 0

    def end(pid: int) -> None:
        # It may have ended by itself.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def ask_and_kill(process: Process, *request: Any) -> tuple[Any, ...]:
        nonlocal left
        left -= 1
        if left == 0:
            threading.Timer(chance.random() * 0.001, end, [process.pid]).start()
        return ask(process, *request)

    monkeypatch.setattr(Process, "ask_plainly", ask_and_kill)
    ended, said = 0, set()
    tries = sized(30, 200)
    for number in range(tries):
        # Looking, opening, beginning, two requests for each run, committing.
        left = chance.randrange(1, 50)
        try:
            store_json(one_run.db, {f"more{n}": json.dumps({"n": number}) for n in range(20)})
        except DatabaseError as error:
            said.add(str(error).partition(": ")[2])
            ended += 1
        found = one_run.execute("SELECT DISTINCT aggregate_json FROM eval_runs WHERE run_id LIKE 'more%'")
        assert len(found) == 1
    assert one_run.execute("PRAGMA integrity_check") == [("ok",)]
    assert ended > tries // 3
    (line,) = said
    assert "ended by signal 9" in line
    assert "all of the new numbers or none" in line


DIE = """
    import os, signal, sys, threading
    from pathlib import Path
    from kbeval.database.connection import Database
    with Database(Path(sys.argv[1])) as database:
        print(database.process.pid, flush=True)
        database.open("rw")
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE eval_runs SET aggregate_json = 'half'")
        threading.Timer(float(sys.argv[3]), os.kill, [os.getpid(), signal.SIGKILL]).start()
        while True:
            database.execute(sys.argv[2])
"""
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"


@pytest.mark.parametrize("statement", ["SELECT 1", FOREVER], ids=["short", "long"])
def test_it_ends_with_the_program_that_started_it(one_run: Workspace, statement: str) -> None:
    for wait in ("0", "0.02", "0.2"):
        command = [sys.executable, "-c", textwrap.dedent(DIE), str(one_run.db), statement, wait]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert found.returncode == -signal.SIGKILL
        assert wait_until_gone(int(found.stdout))
        assert one_run.stored() == ""


def test_it_stops_waiting_for_a_lock_when_its_caller_is_gone(one_run: Workspace) -> None:
    code = """
        import os, signal, sys, threading
        from pathlib import Path
        from kbeval.database.connection import Database
        database = Database(Path(sys.argv[1]))
        print(database.process.pid, flush=True)
        threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGKILL]).start()
        database.open("rw", 60_000)
    """
    with closing(sqlite3.connect(one_run.db, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        found = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), str(one_run.db)], capture_output=True, text=True, check=False
        )
        assert found.returncode == -signal.SIGKILL
        assert wait_until_gone(int(found.stdout))


INTERRUPTED = """
    import os, signal, subprocess, sys, time
    command = [sys.executable, "-m", "kbeval", *sys.argv[2:]]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, start_new_session=True, text=True, **quiet)
    # Before that, Python is still starting.
    while not open(f"/proc/{process.pid}/task/{process.pid}/children").read() and process.poll() is None:
        time.sleep(0.001)
    # As a terminal does: to all processes of the group.
    try:
        process.wait(float(sys.argv[1]))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    print(process.returncode)
    print(err)
"""


@pytest.mark.slow
def test_ctrl_c_at_any_moment_ends_both(one_run: Workspace) -> None:
    codes = set()
    for number in range(0, 14, sized(3, 1)):
        arguments = ["score", "--all", "--force", "--db", str(one_run.db), "--golden", str(one_run.golden)]
        found = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(number * number * 0.01), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        code, _, err = found.stdout.partition("\n")
        codes.add(int(code))
        assert "Traceback" not in err, err
        assert "internal error" not in err, err
    assert codes <= {0, 130}
    assert 130 in codes


# --- programs around it -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("_none_kept")
def test_a_program_that_forks(one_run: Workspace) -> None:
    """The child has its own process: it can start a new one, and its parent is not affected."""
    with Database(one_run.db) as database:
        database.open()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(ProcessEndedError):
                    database.execute("SELECT 1")
                code = 0 if kbeval.score_runs(one_run.db, one_run.golden).aggregates["run"].mrr == 1.0 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert database.execute("SELECT 1").rows == [(1,)]


def test_a_fork_that_lives_on_does_not_keep_it_alive(one_run: Workspace) -> None:
    code = """
        import os, sys, time
        from pathlib import Path
        from kbeval.database.connection import Database
        database = Database(Path(sys.argv[1]))
        database.open()
        print(database.process.pid, flush=True)
        if os.fork() == 0:
            os.close(1)
            os.close(2)
            time.sleep(30)
            os._exit(0)
        os._exit(0)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(one_run.db)], capture_output=True, text=True, check=False
    )
    assert wait_until_gone(int(found.stdout))


def test_no_descriptor_of_the_program_reaches_it(one_run: Workspace) -> None:
    SPARE.end()
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        with Database(one_run.db) as database:
            database.open()
            there = {file.readlink() for file in Path(f"/proc/{database.process.pid}/fd").iterdir()}
            assert Path(f"/proc/self/fd/{writing}").readlink() not in there
    finally:
        os.close(reading)
        os.close(writing)
        SPARE.prepare()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_descriptors_may_be_closed(one_run: Workspace, closed: str) -> None:
    command = f"{sys.executable} -m kbeval score --all --db {one_run.db} --golden {one_run.golden} {closed}"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in found.stderr
    assert json.loads(one_run.stored())["mrr"] == 1.0


@pytest.mark.parametrize("name", [b"b\xe4d.db", "Ωδ.db".encode(), b"a b%20?#&'\".db", b"new\nline.db"])
@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_any_name_in_any_locale(one_run: Workspace, tmp_path: Path, name: bytes, locale: str) -> None:
    path = one_run.db.rename(tmp_path / os.fsdecode(name))
    found = subprocess.run(
        [sys.executable, "-m", "kbeval", "runs", "--format", "json", "--db", os.fsencode(path)],
        env={**os.environ, "LC_ALL": locale, "LANG": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert b'"run"' in found.stdout


def test_a_program_that_is_not_python_says_what_is_missing(one_run: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    SPARE.end()
    monkeypatch.setattr(sys, "_base_executable", "")
    monkeypatch.setattr(sys, "base_exec_prefix", "/nowhere")
    for executable in ("", "/usr/bin/env", "/nowhere/python3"):
        monkeypatch.setattr(sys, "executable", executable)
        with pytest.raises(DatabaseError, match="no Python interpreter found"):
            one_run.score()
    monkeypatch.setattr(sys, "executable", not_really_python(one_run.db.parent))
    with pytest.raises(DatabaseError, match="is a different Python"):
        one_run.score()
    monkeypatch.undo()
    SPARE.prepare()


def not_really_python(folder: Path) -> str:
    """A program that is called python and ends at once."""
    path = folder / "python3"
    path.write_text("#!/bin/sh\nexit 3\n")
    path.chmod(0o755)
    return str(path)


def test_a_killed_process_does_not_end_a_program_that_leaves_sigpipe_alone(one_run: Workspace) -> None:
    code = """
        import os, signal, sys, time
        from pathlib import Path
        from kbeval.database.connection import Database
        from kbeval.errors import DatabaseError
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        database = Database(Path(sys.argv[1]))
        database.open()
        os.kill(database.process.pid, signal.SIGKILL)
        time.sleep(0.2)
        try:
            database.execute("SELECT 1")
        except DatabaseError as error:
            print(error)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(one_run.db)], capture_output=True, text=True, check=False
    )
    assert "ended by signal 9" in found.stdout


def test_a_process_is_started_before_it_is_needed() -> None:
    found = Process()
    try:
        assert found.ask("look", b"/nowhere") is None
    finally:
        found.end()
