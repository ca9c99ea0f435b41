"""Memory: threads follow the limit, large rows are read, and one that is too large costs its own run only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kbeval.engine import Session
from kbeval.memory import most_threads
from kbeval.sources.opening import open_rows
from tests.bench.data import make_database
from tests.workspace import Workspace

# What Python, the engine and the data frames take before anything is read.
PROGRAM_MEGABYTES = 170


def run(*arguments: str, cwd: Path | None = None) -> tuple[int, str, str, int]:
    """A command in a process of its own: its exit code, output, errors, and its greatest resident size in megabytes."""
    code = (
        "import resource, subprocess, sys;"
        "done = subprocess.run([sys.executable, '-m', 'kbeval', *sys.argv[1:]]);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr);"
        "sys.exit(done.returncode if done.returncode >= 0 else 256 + done.returncode)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, cwd=cwd, check=False
    )
    *lines, peak = done.stderr.splitlines()
    return done.returncode, done.stdout, "\n".join(lines), int(peak)


# --- threads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "threads"), [("16MB", 1), ("100MB", 2), (None, 8), ("2GB", 40), ("1TB", 20_000)])
def test_there_are_no_more_threads_than_there_is_memory_for(limit: str | None, threads: int) -> None:
    assert most_threads(limit) == threads


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_session_takes_no_more_threads_than_there_is_memory_for(is_shared: bool) -> None:
    for asked, found in ((64, 2), (1, 1)):
        with Session(threads=asked, memory_limit="100MB", is_shared=is_shared) as session:
            session.all_for_one()
            assert session.rows("SELECT current_setting('threads')") == [(found,)]


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["32", "64"])
@pytest.mark.parametrize("match", ["exact", "span"])
def test_many_threads_do_not_run_out_of_memory(tmp_path: Path, threads: str, match: str) -> None:
    database, golden = make_database(tmp_path, runs=8, queries=1000, hits=10)
    options = ("--threads", threads, "--match", match, "--cache", "off", "--format", "json")
    code, out, errors, peak = run("score", "--all", "--db", str(database), "--golden", str(golden), *options)
    assert code == 0, errors
    assert f"8 threads instead of {threads}" in errors
    assert len(json.loads(out)) == 8
    assert peak < 400 + PROGRAM_MEGABYTES


# --- rows ----------------------------------------------------------------------------------------------


def row(size: int) -> str:
    """A row of about so many bytes."""
    text = "x" * (size // 10)
    hits = [{"rank": rank, "chunk_id": f"c{rank}", "doc_id": "d", "text": text} for rank in range(1, 11)]
    return json.dumps({"hits_top_k": hits})


@pytest.mark.slow
def test_many_large_rows_fit_into_the_default_memory(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c3"]} for n in range(300)))
    workspace.add_run("run", {f"q{n}": row(300_000) for n in range(300)})
    for match in ("span", "exact"):
        options = ("--force", "--match", match, "--cache", "off")
        code, _, errors, peak = run(
            "score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden), *options
        )
        assert code == 0, errors
        assert peak < 400 + PROGRAM_MEGABYTES
    assert json.loads(workspace.stored())["mrr"] == 0.3333


@pytest.mark.slow
def test_several_rows_as_large_as_can_be_are_read_one_at_a_time(workspace: Workspace) -> None:
    workspace.add_golden(*({"id": f"q{n}", "expected_chunk_ids": ["c3"]} for n in range(300)))
    rows = {f"q{n}": row(100) for n in range(300)} | {f"q{n}": row(2_400_000) for n in range(100, 108)}
    workspace.add_run("run", rows)
    found = workspace.score(memory_limit="100MB", cache="off")
    assert found.bad_rows == []
    assert found.aggregates["run"].mrr == 0.3333


def test_a_row_that_is_too_large_is_named_and_costs_its_own_run_only(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c2"]}, {"id": "q2", "expected_chunk_ids": ["c2"]})
    workspace.add_run("good", {"q1": row(1000), "q2": row(1000)})
    workspace.add_run("huge", {"q1": row(1000), "q2": row(50_000_000)})
    code, _, errors, peak = run("score", "--all", "--db", str(workspace.db), "--golden", str(workspace.golden))
    assert code == 2
    assert "run huge, query q2: is too large: 50,000,598 bytes of JSON, at most 10,000,000" in errors
    assert "--memory-limit" in errors
    assert peak < 400 + PROGRAM_MEGABYTES
    assert json.loads(workspace.stored("good"))["mrr"] == 0.5
    assert workspace.stored("huge") == ""


def test_with_more_memory_the_same_row_is_read(workspace: Workspace) -> None:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c2"]})
    workspace.add_run("run", {"q1": row(900_000)})
    assert len(workspace.score("run", memory_limit="32MB", cache="on").bad_rows) == 1
    assert workspace.score("run", cache="on").bad_rows == []


def test_an_archive_holds_a_row_whole_that_was_too_large_to_parse(workspace: Workspace, tmp_path: Path) -> None:
    workspace.add_golden({"id": "q1", "expected_chunk_ids": ["c2"]})
    workspace.add_run("run", {"q1": row(900_000)})
    folder = str(tmp_path / "old")
    assert run("archive", folder, "--db", str(workspace.db), "--memory-limit", "32MB")[0] == 0
    with open_rows(folder) as source:
        assert source.result_json("run", "q1") == row(900_000)
