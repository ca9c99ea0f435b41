"""Archivings that are killed, interrupted or concurrent: nothing is half-written, and the next one finishes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from kbeval.golden import load_golden
from kbeval.storage.archive_writer import archive_runs
from kbeval.util.locks import locked
from tests.support.archives import contents, manifest, said
from tests.support.examples import sized
from tests.support.workspace import Workspace, hits

QUERIES = sized(150, 400)
COMMAND = [sys.executable, "-m", "kbeval"]


@pytest.fixture
def history(workspace: Workspace) -> Workspace:
    """Enough rows to be caught in the middle of."""
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": [f"c{n % 7}"]} for n in range(QUERIES)))
    for number in range(6):
        rows = {f"q{n}": {"hits_top_k": hits(*(f"c{(n * k + number) % 9}" for k in range(20)))} for n in range(QUERIES)}
        workspace.add_run(f"run{number}", {query_id: json.dumps(row) for query_id, row in rows.items()})
    return workspace


def archiving(workspace: Workspace, folder: Path) -> list[str]:
    return [*COMMAND, "archive", str(folder), "--db", str(workspace.db), "--golden", str(workspace.golden)]


def score_json(capfd: pytest.CaptureFixture[str], workspace: Workspace, database: Path) -> str:
    command = ["score", "--all", "--dry-run", "--force", "--format", "json", "--golden", str(workspace.golden)]
    code, out, _ = said(capfd, database, *command)
    assert code == 0
    return out


def assert_complete(capfd: pytest.CaptureFixture[str], workspace: Workspace, folder: Path) -> None:
    """The archive equals the SQLite database, and no other files are left."""
    assert score_json(capfd, workspace, folder) == score_json(capfd, workspace, workspace.db)
    found = manifest(folder)
    tables, runs = ({each["name"] for each in found[kind].values()} for kind in ("tables", "runs"))
    earlier = set(found["before"])
    assert {path.name for path in folder.iterdir()} - earlier == {"manifest.json", "runs", *tables}
    assert {path.name for path in (folder / "runs").iterdir()} - {Path(name).name for name in earlier} == runs


@pytest.mark.slow
def test_killed_at_any_moment_the_next_call_finishes(
    history: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "history"
    moments = random.Random(11)
    whole, killed, enough = 1.0, 0, sized(3, 10)
    for number in range(40):
        process, started = subprocess.Popen(archiving(history, folder), stderr=subprocess.DEVNULL), time.monotonic()
        try:
            assert process.wait(moments.uniform(0.3, 0.95) * whole) == 0
            # The machine may be faster now than it was.
            whole = time.monotonic() - started
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed, whole = killed + 1, whole * 1.1
        assert history.execute("PRAGMA integrity_check") == [("ok",)]
        if (folder / "manifest.json").exists():
            # What was archived last is whole, whatever was being done to it.
            assert said(capfd, folder, "runs")[0] == 0
        if killed == enough:
            break
        # There is always something left to do.
        text = json.dumps({"hits_top_k": hits(f"c{number % 7}")})
        history.execute("UPDATE eval_query_results SET result_json = ? WHERE query_id = 'q1'", (text,))
    assert killed == enough
    assert subprocess.run(archiving(history, folder), check=False, capture_output=True).returncode == 0
    assert_complete(capfd, history, folder)


STOP_AT = """
    import os, pathlib, signal, sys
    from kbeval.cli import run
    number, place = int(sys.argv[1]), [0]
    def deadly(name):
        call = getattr(pathlib.Path, name)
        def counted(*arguments, **options):
            place[0] += 1
            if place[0] == number:
                os.kill(os.getpid(), getattr(signal, sys.argv[2]))
            return call(*arguments, **options)
        setattr(pathlib.Path, name, counted)
    for name in ("rename", "replace", "unlink", "mkdir"):
        deadly(name)
    code = run(sys.argv[3:])
    sys.exit(99 if place[0] < number else code)
"""


def stopped(arguments: list[str], number: int, how: str) -> subprocess.CompletedProcess[str]:
    """An archiving that gets a signal at its n-th step that changes the folder."""
    command = [sys.executable, "-c", textwrap.dedent(STOP_AT), str(number), how, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# Imports once and forks for each: the interpreter would take most of the time.
STOP_AT_EACH = f"""
import os, sys
import duckdb, kbeval.cli.archive, kbeval.golden, kbeval.storage.archive_writer
code, arguments = compile({textwrap.dedent(STOP_AT)!r}, "stop", "exec"), sys.argv[1:]
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        sys.argv = ["-", line, "SIGKILL", *arguments]
        try:
            exec(code)
        except SystemExit as ended:
            os._exit(ended.code)
        os._exit(98)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_killed_between_any_two_steps_of_an_update_the_archive_is_whole(
    workspace: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Readers see the old state or the new one, never anything between."""
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c"]})
    workspace.add_run("a", {"q": {"hits_top_k": hits("c")}})
    folder = tmp_path / "history"
    archive_runs(workspace.db, folder, load_golden(workspace.golden))
    workspace.execute("UPDATE eval_query_results SET result_json = ?", (json.dumps({"hits_top_k": hits("x", "c")}),))
    before = score_json(capfd, workspace, folder)
    after = score_json(capfd, workspace, workspace.db)
    arguments = archiving(workspace, folder)[len(COMMAND) :]
    seen = []
    command = [sys.executable, "-c", STOP_AT_EACH, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        for number in range(1, 60, sized(8, 1)):
            print(number, file=driver.stdin, flush=True)
            code = int(driver.stdout.readline())
            seen.append(score_json(capfd, workspace, folder))
            if code == 99:
                break
            assert code == -signal.SIGKILL
        driver.stdin.close()
    assert code == 99
    assert set(seen) == {before, after}
    assert seen
    assert_complete(capfd, workspace, folder)


def test_ctrl_c_leaves_nothing_half_written(
    history: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "history"
    archive_runs(history.db, folder, load_golden(history.golden))
    before = contents(folder)
    history.execute("UPDATE eval_query_results SET result_json = '{}' WHERE query_id = 'q1'")
    done = stopped(archiving(history, folder)[len(COMMAND) :], 12, "SIGINT")
    assert done.returncode == 130
    assert done.stderr.strip() == "kbeval: interrupted; no partial results were written"
    after = contents(folder)
    assert {name: after.get(name) for name in before} == before
    assert not list(folder.glob("draft-*"))
    assert subprocess.run(archiving(history, folder), check=False, capture_output=True).returncode == 0
    assert_complete(capfd, history, folder)


@pytest.mark.slow
def test_two_archivings_at_once_do_no_harm(
    history: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "history"
    for _ in range(2):
        both = [subprocess.Popen(archiving(history, folder), stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said_by = [process.communicate()[1] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        # The second one found the work done.
        assert sorted("6 unchanged" in text for text in said_by) == [False, True]
        assert_complete(capfd, history, folder)
        history.execute("UPDATE eval_query_results SET result_json = '{}' WHERE query_id = 'q2'")


def test_an_archiving_that_is_locked_out_says_why(
    history: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kbeval.storage.archive_writer.BUSY_TIMEOUT_MS", 100)
    folder = tmp_path / "history"
    folder.mkdir()
    with locked(folder, exclusive=True) as is_held:
        assert is_held
        code, _, err = said(capfd, history.db, "archive", str(folder))
    assert code == 2
    assert "is being written by another process; wait for it to finish" in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_readers_see_one_state_or_the_other_while_others_archive(
    history: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "history"
    archive_runs(history.db, folder, load_golden(history.golden))
    states = [score_json(capfd, history, history.db)]
    seen = []
    for number in range(2):
        text = json.dumps({"hits_top_k": hits(*["x"] * number, "c1")})
        history.execute("UPDATE eval_query_results SET result_json = ? WHERE query_id = 'q1'", (text,))
        states.append(score_json(capfd, history, history.db))
        process = subprocess.Popen(archiving(history, folder), stderr=subprocess.DEVNULL)
        while process.poll() is None:
            seen.append(score_json(capfd, history, folder))
        assert process.returncode == 0
    assert seen
    assert set(seen) <= set(states)
    assert score_json(capfd, history, folder) == states[-1]


def test_nothing_is_deleted_while_another_process_reads(
    history: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even what neither the manifest nor the one before it names."""
    folder = tmp_path / "history"
    archive_runs(history.db, folder)
    first = contents(folder).keys() - {"manifest.json"}
    with locked(folder / "runs", exclusive=False):
        for number in range(3):
            history.execute(f"UPDATE eval_query_results SET result_json = '{{\"x\":{number}}}' WHERE query_id = 'q1'")
            archive_runs(history.db, folder)
        assert first <= contents(folder).keys()
    history.execute("UPDATE eval_query_results SET result_json = '{}' WHERE query_id = 'q1'")
    archive_runs(history.db, folder, load_golden(history.golden))
    assert not first <= contents(folder).keys()
    assert_complete(capfd, history, folder)
