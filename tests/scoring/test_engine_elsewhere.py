"""`score --engine`, on Sail: a Spark Connect server in a process of its own on loopback, without a JVM."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbeval.cli import run
from kbeval.engine.far_session import FarSession
from kbeval.engine.spark import SparkConnect
from kbeval.errors import EngineError
from tests.support.elsewhere import (
    KBEVAL,
    Said,
    archived,
    assert_exact_numbers,
    assert_same_bytes,
    hostile_archive,
    large_archive,
    score,
    told,
)
from tests.support.pages import ROOT, blocks_in
from tests.support.second_engine import Sail, running_sail, sail_server

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sail]:
    with running_sail(tmp_path_factory.mktemp("sail")) as engine:
        yield engine


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return hostile_archive(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def demo(made_demo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive of the demo, and its labels; only to be copied."""
    golden = made_demo / "golden.yaml"
    return archived(made_demo / "kb.db", golden, tmp_path_factory.mktemp("demo") / "history"), golden


def copied(demo: tuple[Path, Path], folder: Path) -> Path:
    return shutil.copytree(demo[0], folder / "history")


AGREED = "MAX(CASE WHEN is_expected_chunk THEN CAST(1 AS DOUBLE) / (rank + 2) END)"


def own_metric(folder: Path, expression: str, *, name: str = "own_one") -> tuple[str, str]:
    """The arguments for a metric of one's own."""
    (folder / name).mkdir()
    head = f"-- {name}: a metric of one's own\n-- grain: per_expected_hit\n"
    (folder / name / f"{name}.sql").write_text(head + expression + "\n")
    return "--metrics", str(folder / name)


@dataclass(frozen=True)
class Stored:
    """What a command printed, and what it stored."""

    stdout: str
    told: list[str]
    scores: str


def stored_in(archive: Path, found: Said | subprocess.CompletedProcess[str]) -> Stored:
    assert found.returncode == 0, found.stderr
    return Stored(
        found.stdout, told(found.stderr.replace(str(archive), "/here")), (archive / "scores.json").read_text()
    )


@pytest.fixture(scope="module")
def by_duckdb(hostile: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """What DuckDB stores of the odd runs."""
    archive = copied(hostile, tmp_path_factory.mktemp("by_duckdb"))
    return stored_in(archive, score(archive, hostile[1]))


# Without any of these, they are compared below, where a process was killed.
HOW = {
    "span": "--match span --missing zero --by category,tags",
    "exact, and an own metric": "--match exact --missing zero --by tags",
}


@pytest.mark.parametrize("how", HOW)
def test_odd_runs_have_the_same_bytes(hostile: tuple[Path, Path], tmp_path: Path, sail: Sail, how: str) -> None:
    own = own_metric(tmp_path, AGREED) if "own" in how else ()
    stored = assert_same_bytes(*hostile, tmp_path, sail.address, *HOW[how].split(), *own, to_the_last_byte=False)
    assert ('\\"own_one\\"' in stored) is bool(own)


def test_large_runs_have_the_same_bytes(tmp_path: Path, sail: Sail) -> None:
    """20 runs × 2,000 queries × 10 hits."""
    archive = large_archive(tmp_path, queries=2_000)
    how = ("--match", "exact", "--by", "category")
    assert_same_bytes(*archive, tmp_path, sail.address, *how, to_the_last_byte=False)


def test_stored_numbers_are_exact(tmp_path: Path, sail: Sail) -> None:
    assert_exact_numbers(sail, tmp_path, groups=4_000)


def refused(fragment: str, archive: Path, golden: Path, *arguments: str) -> None:
    """One line, exit code 2, and nothing is stored or left."""
    before = sorted(path.name for path in archive.iterdir()) if archive.is_dir() else []
    found = score(archive, golden, *arguments)
    lines = [line for line in found.stderr.splitlines() if line]
    assert (found.returncode, found.stdout, len(lines)) == (2, "", 1), found.stderr
    assert fragment in lines[0], lines[0]
    assert "Traceback" not in found.stderr
    if archive.is_dir():
        assert sorted(path.name for path in archive.iterdir()) == before


def test_what_goes_wrong_is_one_line(demo: tuple[Path, Path], made_demo: Path, tmp_path: Path, sail: Sail) -> None:
    archive, golden = copied(demo, tmp_path), demo[1]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        away = f"sc://127.0.0.1:{unused.getsockname()[1]}"
    refused("no server at", archive, golden, "--engine", f"{away}/;token=secret")
    refused("it must be the address of a Spark Connect server", archive, golden, "--engine", "http://x;token=secret")
    refused("SPARK_REMOTE, which is not set", archive, golden, "--engine", "spark")
    # A SQLite database.
    refused("--engine reads archives", made_demo / "kb.db", golden, "--engine", sail.address)
    # Fields of stored rows.
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "words.sql").write_text(
        "-- words: how many letters the answer has\n-- grain: per_query\nLENGTH(fields ->> '$.answer.answer')\n"
    )
    refused("cannot compute metrics that name fields", archive, golden, "--engine", sail.address, "--metrics", "own")
    refused("slice by fields of the golden file", archive, golden, "--engine", sail.address, "--by", "mode")
    # A damaged archive: a file that was cut short, and one of the same length with other bytes.
    hits = next(archive.glob("runs/*rechunked*/hits.parquet"))
    whole = hits.read_bytes()
    hits.write_bytes(whole[:-20])
    refused("is a damaged archive", archive, golden, "--engine", sail.address)
    hits.write_bytes(whole[:-12] + b"\0" * 12)
    refused("cannot read a file of the archive", archive, golden, "--engine", sail.address)
    hits.write_bytes(whole)
    # A path that engines take for a pattern.
    odd = archive.rename(tmp_path / "we[1]rd")
    refused("for a pattern", odd, golden, "--engine", sail.address)


def test_a_server_that_dies_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.connect.client import retries

    # The client asks again after seconds; here it does not wait so long.
    hasty = functools.partial(retries.DefaultPolicy, backoff_multiplier=1, jitter=0)
    monkeypatch.setattr(retries, "DefaultPolicy", hasty)
    with sail_server(tmp_path) as address:
        engine = SparkConnect(f"{address}/;user_id=secret")
    with pytest.raises(EngineError, match="does not answer") as raised:
        engine.rows("SELECT 1")
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
    engine.stop()


def test_a_server_that_sees_other_files_is_one_line(tmp_path: Path, sail: Sail) -> None:
    """At the path of the exchange folder there is nothing there, or another archive."""
    engine = SparkConnect(sail.address)
    (tmp_path / "other").mkdir()
    (tmp_path / "mine").mkdir()
    with FarSession(engine, tmp_path / "mine", reach=[tmp_path]) as session:
        session.check_place()
        for elsewhere in ("nowhere", "other"):
            real = engine.read

            def read(name: str, paths: Sequence[Path], elsewhere: str = elsewhere, real: Any = real) -> None:
                """As a server to which this path is another folder."""
                real(name, [tmp_path / elsewhere / path.name for path in paths])

            shutil.copy(tmp_path / "mine" / "probe.parquet", tmp_path / "other")
            engine.read = read  # type: ignore[method-assign]
            with pytest.raises(EngineError, match="the archive must be at the same path there") as raised:
                session.check_place()
            assert "\n" not in str(raised.value)
            engine.read = real  # type: ignore[method-assign]
    engine.stop()


def test_a_server_that_runs_out_of_memory_is_one_line(hostile: tuple[Path, Path], tmp_path: Path) -> None:
    """A real one, with 100 kB for all that it sorts, joins and groups."""
    pool = {"SAIL_RUNTIME__MEMORY_POOL__TYPE": "greedy", "SAIL_RUNTIME__MEMORY_POOL__GREEDY__MAX_SIZE": "100000"}
    with sail_server(tmp_path, env={**os.environ, **pool}) as address:
        refused("ran out of memory (at", copied(hostile, tmp_path), hostile[1], "--engine", address)


@pytest.mark.parametrize(
    "message",
    [
        "[SPARK_JOB_CANCELLED] Job aborted due to stage failure: java.lang.OutOfMemoryError: Java heap space\n\tat x",
        "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory, got 0. SQLSTATE: 53200",
        "Not enough memory to build and broadcast the table to all worker nodes.",
        "Task 0 failed: org.apache.spark.SparkException: Could not allocate memory to grow BytesToBytesMap.\n\tat x",
        "Lost task 0.3: ExecutorLostFailure (executor 1 exited caused by a task) Reason: Command exited with code 52",
        "Resources exhausted: Failed to allocate additional 1.0 MB for GroupedHashAggregateStream",
    ],
)
def test_a_server_without_memory_is_one_line(sail: Sail, message: str) -> None:
    """As Spark and Sail say it."""
    engine = SparkConnect(sail.address)

    def fail() -> None:
        raise RuntimeError(message)

    with pytest.raises(
        EngineError, match=r"ran out of memory \(at per_query\): give it more, or score in shards"
    ) as raised:
        engine._doing("per_query", fail)
    assert "\n" not in str(raised.value)
    # A worker that went away for another reason is not said to have had too little memory.
    message = "Lost task 0.3: ExecutorLostFailure (executor 1 exited) Reason: worker lost: 127.0.0.1:4000\n\tat x"
    with pytest.raises(EngineError, match=r"failed \(at per_query\): .*worker lost: 127\.0\.0\.1:4000$"):
        engine._doing("per_query", fail)
    engine.stop()


def test_the_script_of_the_documentation_works(own_demo: Path, tmp_path: Path, sail: Sail) -> None:
    page = (ROOT / "docs" / "beyond-one-machine.md").read_text()
    (script,) = (block.text for block in blocks_in(page) if block.file)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SPARK_REMOTE": sail.address}
    found = subprocess.run(
        ["sh", "-c", script], check=False, cwd=own_demo, env=environment, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stderr
    assert "stored the numbers of 4 runs in history" in found.stderr


def test_an_own_metric_on_which_engines_differ_is_refused(demo: tuple[Path, Path], tmp_path: Path, sail: Sail) -> None:
    archive = copied(demo, tmp_path)
    one = own_metric(tmp_path, "MAX(CASE WHEN is_expected_chunk THEN 1.0 / (rank + 2) END)")
    two = own_metric(tmp_path, "MAX(rank // 2)", name="own_two")
    assert score(archive, demo[1], "--dry-run", *one, *two).returncode == 0
    for own, file, fault in (
        (one, "own_one.sql", r"own_one is 0\.\d+ by DuckDB and 0\.\d+ by the"),
        (two, "own_two.sql", "the engine at sc://"),
    ):
        found = score(archive, demo[1], "--engine", sail.address, *own)
        assert found.returncode == 2, file
        assert re.search(fault, found.stderr), (file, found.stderr)
        assert file in found.stderr, file
        assert not (archive / "scores.json").exists(), file


def score_and_end(archive: Path, golden: Path, sail: Sail, ending: signal.Signals) -> int:
    """Send a signal while files are exchanged; the exit code."""
    command = [*KBEVAL, "score", "--all", "--skip-bad-rows", "--db", str(archive), "--golden", str(golden)]
    victim = subprocess.Popen([*command, "--engine", sail.address], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 300
    while not list(archive.glob("exchange-*/*/*.parquet")):
        assert victim.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    victim.send_signal(ending)
    _, errors = victim.communicate(timeout=300)
    assert b"Traceback" not in errors
    return victim.returncode


def test_after_ctrl_c_nothing_is_left(hostile: tuple[Path, Path], tmp_path: Path, sail: Sail) -> None:
    archive, golden = copied(hostile, tmp_path), hostile[1]
    assert score_and_end(archive, golden, sail, signal.SIGINT) == 130
    assert not list(archive.glob("*exchange-*"))
    assert not (archive / "scores.json").exists()


# Root, but files of others are as closed to it as to anybody. 24 is PR_CAPBSET_DROP; the capabilities are
# CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
WITHOUT_PRIVILEGE = """
import ctypes, os, sys
for capability in (1, 2):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_what_a_killed_process_left_has_no_effect_and_nothing_big_passes_through_the_client(
    hostile: tuple[Path, Path], by_duckdb: Stored, tmp_path: Path, sail: Sail
) -> None:
    """One scoring for both: the second client cannot read the files of runs of all systems, which the server can."""
    archive, golden = copied(hostile, tmp_path), hostile[1]
    score_and_end(archive, golden, sail, signal.SIGKILL)
    assert len(list(archive.glob("*exchange-*"))) == 1
    # Calls without an engine are not disturbed by it, and the next one with an engine removes it.
    assert run(["score", "--all", "--dry-run", "--db", str(archive), "--golden", str(golden)]) in (0, 2)
    assert not (archive / "scores.json").exists()

    hidden = list(archive.glob("runs/*/*.parquet"))
    assert {path.stem for path in hidden} >= {"results", "hits", "hit_claims", "anchor_rows", "cited_places", "answers"}
    command = [*KBEVAL, "score", "--all", "--skip-bad-rows", "--db", str(archive), "--golden", str(golden)]
    # Only root can take files away from one of two processes.
    if os.geteuid() == 0:
        for path in hidden:
            path.chmod(0o600)
            os.chown(path, 54321, 54321)
        command = [sys.executable, "-c", WITHOUT_PRIVILEGE, *command]

    def client(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], check=False, capture_output=True, text=True, timeout=600)

    if os.geteuid() == 0:
        # Without the server, the client cannot read them.
        alone = client("--force")
        assert (alone.returncode, "is missing or damaged" in alone.stderr) == (2, True), alone.stderr
    # Where the times at which spans were first seen are known, numbers are the same to the last byte: those of all
    # runs are taken out, and must come back.
    emptied = re.sub(r'("runs": )\{.*\n \}', r"\1{}", by_duckdb.scores, flags=re.DOTALL)
    assert len(emptied) < len(by_duckdb.scores)
    (archive / "scores.json").write_text(emptied)
    assert stored_in(archive, client("--force", "--engine", sail.address)) == by_duckdb
    # Nor are they read to see that nothing has changed since.
    found = client("--engine", sail.address)
    assert (found.returncode, "7 runs unchanged" in found.stderr) == (0, True), found.stderr
    assert not list(archive.glob("*exchange-*"))


def test_without_the_extra_nothing_imports_the_client(demo: tuple[Path, Path], tmp_path: Path) -> None:
    """Nothing even tries to. With --engine, one line says what to install."""
    archive, golden = copied(demo, tmp_path), demo[1]
    code = (
        "import sys\n"
        "tried = set()\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('pyspark', 'grpc', 'pandas'):\n"
        "            tried.add(name.partition('.')[0])\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from kbeval.cli import run\n"
        "code = run(sys.argv[1:])\n"
        "print('tried:', *sorted(tried - {'pandas'}))\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", code, "score", "--all", "--db", str(archive), "--golden", str(golden)]
    found = subprocess.run([*command, "--engine", "sc://127.0.0.1:1"], check=False, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (2, "tried: pyspark\n")
    assert found.stderr.splitlines() == [
        "kbeval: --engine needs the client of Spark Connect: pip install 'kbeval[spark]'"
    ]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == "tried:"
