"""Memory: threads follow the limit, large rows are read or named, and a question in SQL is held to it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pexpect
import pytest

from kbeval.engine.memory import most_threads
from kbeval.engine.session import Session
from kbeval.errors import NotEnoughMemoryError
from kbeval.explore.explorer import open_explorer
from kbeval.scoring.aggregate import Scored, aggregate_runs
from kbeval.scoring.scorer import Scoring
from kbeval.storage import archive_writer
from kbeval.storage.manifest import read_manifest
from kbeval.storage.options import ReadOptions
from kbeval.storage.runs import Run
from kbeval.storage.source import open_rows
from kbeval.systems.fast_trace_session import TwoThreadedSession
from tests.bench.data import make_database
from tests.bench.short_rows import make_short_history
from tests.support.examples import sized
from tests.support.workspace import Workspace

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
def test_threads_are_limited_by_the_memory(limit: str | None, threads: int) -> None:
    assert most_threads(limit) == threads


@pytest.mark.parametrize("kind", [Session, TwoThreadedSession])
def test_a_session_takes_no_more_threads_than_there_is_memory_for(kind: type[Session]) -> None:
    for asked, found in ((64, 2), (1, 1)):
        with kind(threads=asked, memory_limit="100MB") as session:
            if isinstance(session, TwoThreadedSession):
                assert session.rows("SELECT current_setting('threads')") == [(1,)]
                session.use_all_threads()
            with pytest.raises(duckdb.Error, match="lock"):
                session.execute("SET threads = 1")
            assert session.rows("SELECT current_setting('threads')") == [(found,)]


@pytest.mark.slow
def test_many_threads_do_not_run_out_of_memory(tmp_path: Path) -> None:
    database, golden = make_database(tmp_path, runs=8, queries=1000, hits=10)
    for threads, match in (("32", "exact"), ("64", "span")):
        options = ("--threads", threads, "--match", match, "--cache", "off", "--format", "json", "--force")
        code, out, errors, peak = run("score", "--all", "--db", str(database), "--golden", str(golden), *options)
        assert code == 0, (match, errors)
        assert f"8 threads instead of {threads}" in errors
        assert len(json.loads(out)) == 8, match
        assert peak < 400 + PROGRAM_MEGABYTES, match


# --- rows ----------------------------------------------------------------------------------------------


def row(size: int) -> str:
    """A row of about this many bytes."""
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
    rows = {f"q{n}": row(100) for n in range(300)} | {f"q{n}": row(1_600_000) for n in range(100, 108)}
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
    assert "run huge, query q2: is too large: 50,000,598 bytes of JSON, at most 6,666,666" in errors
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


# --- questions -----------------------------------------------------------------------------------------
# The engine accounts for what it keeps in its tables and sorts, and not for what one function makes of one value, for
# its parser, or for an answer that is being printed.

GREEDY = {
    "one function of one value": "SELECT length(repeat('x', 2000000000))",
    "one value as the answer": "SELECT repeat('x', 2000000000)",
    "a function that grows its value": "SELECT length(replace(repeat('x', 30000000), 'x', repeat('y', 60)))",
    "a list": "SELECT len(list_resize([1], 500000000))",
    "a range": "SELECT len(range(500000000))",
    "a list of constants": f"SELECT len([{', '.join(['range(1000000)'] * 300)}])",
    "texts put together": "SELECT length(string_agg(repeat('x', 100000), ',')) FROM range(20000)",
    "JSON of a list": "SELECT length(CAST(to_json(range(100000000)) AS VARCHAR))",
    "JSON of a group": "SELECT length(CAST(json_group_array(repeat('x', 100000)) AS VARCHAR)) FROM range(20000)",
    "large rows": "SELECT repeat('x', 10000000) AS text FROM range(300)",
    "nested text": "SELECT " + "(" * 30_000,
    "nested tables": "SELECT * FROM " + "(" * 30_000,
}
needs_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux counts what is mapped")


@needs_linux
@pytest.mark.parametrize("greed", GREEDY)
def test_a_question_keeps_to_the_memory_limit(workspace: Workspace, greed: str) -> None:
    code, out, errors, peak = run("sql", "--db", str(workspace.db), "--memory-limit", "100MB", GREEDY[greed])
    assert code == 2
    assert out == ""
    (line,) = errors.splitlines()
    assert "memory" in line
    assert line.endswith("--memory-limit")
    assert peak < 100 * 1.25 + 128 + PROGRAM_MEGABYTES


@needs_linux
def test_the_prompt_goes_on_after_a_question_that_took_too_much(workspace: Workspace) -> None:
    prompt = pexpect.spawn(
        sys.executable,
        ["-m", "kbeval", "sql", "--db", str(workspace.db), "--memory-limit", "100MB"],
        timeout=60,
        encoding="utf-8",
        dimensions=(40, 200),
    )
    for _ in range(2):
        prompt.expect("kbeval> ")
        prompt.sendline("SELECT length(repeat('x', 2000000000));")
        prompt.expect("--memory-limit")
        prompt.expect("kbeval> ")
        prompt.sendline("SELECT 40 + 2 AS n, COUNT(*) FROM runs;")
        prompt.expect("42")
    prompt.close(force=True)


@needs_linux
def test_the_limit_of_a_question_ends_with_it(workspace: Workspace) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with open_explorer(workspace.db) as explorer, explorer.within_memory():
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] != before[0]
        with pytest.raises(NotEnoughMemoryError):
            explorer.query("SELECT length(repeat('x', 2000000000))")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.slow
def test_an_answer_of_any_size_is_written_in_the_same_memory(workspace: Workspace, tmp_path: Path) -> None:
    question = "SELECT i, repeat('x', 5000) AS text FROM range(30000) AS t(i)"
    options = ("--memory-limit", "100MB", "-o", str(tmp_path / "out.csv"))
    code, _, errors, peak = run("sql", "--db", str(workspace.db), *options, question)
    assert code == 0, errors
    assert (tmp_path / "out.csv").stat().st_size > 150_000_000
    assert peak < 100 + PROGRAM_MEGABYTES


# --- archives ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_archiving_and_scoring_an_archive_stay_within_the_limit(tmp_path: Path) -> None:
    """Runs that do not fit together are scored in several steps, with the same numbers."""
    database, golden = make_short_history(tmp_path / "made", runs=20, queries=sized(2_800, 5_000), hits=10)
    archive, labels = tmp_path / "history", ("--golden", str(golden))
    code, _, errors, peak = run("archive", str(archive), "--db", str(database), *labels, "--memory-limit", "80MB")
    assert code == 0, errors
    assert peak < 80 + PROGRAM_MEGABYTES
    stored, peaks = [], []
    for limit in ("1GB", "60MB"):
        code, _, errors, peak = run("score", "--all", "--db", str(archive), *labels, "--memory-limit", limit)
        assert code == 0, errors
        peaks.append(peak)
        stored.append(json.loads((archive / "scores.json").read_text())["runs"])
        (archive / "scores.json").unlink()
    assert peaks[1] < 60 + PROGRAM_MEGABYTES
    # Together they need more: 30 to 55 MB, measured.
    assert peaks[1] + 15 < peaks[0]
    assert stored[0] == stored[1]
    assert len(stored[0]) == 20


def test_runs_that_do_not_fit_into_memory_together_are_scored_apart(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down to one; what does not fit alone is an error."""
    workspace.add_golden({"id": "q", "expected_chunk_ids": ["c1"]})
    for name in "abcde":
        workspace.add_run(name, {"q": {"hits_top_k": [{"rank": 1, "chunk_id": "c1"}]}})
    whole = workspace.score(to_store=True)
    together: list[int] = []

    def of_at_most_two(scoring: Scoring) -> Scored:
        together.append(len(scoring.runs))
        if len(scoring.runs) > 2:
            msg = "not enough memory"
            raise NotEnoughMemoryError(msg)
        return aggregate_runs(scoring)

    monkeypatch.setattr("kbeval.scoring.aggregate.aggregate_runs", of_at_most_two)
    parts = workspace.score(to_store=True)
    assert [run.run_id for run in parts.runs] == [run.run_id for run in whole.runs]
    assert {name: numbers.to_json() for name, numbers in parts.aggregates.items()} == {
        name: numbers.to_json() for name, numbers in whole.aggregates.items()
    }
    assert parts.row_marks == whole.row_marks
    assert max(together) == 5
    assert sorted(count for count in together if count <= 2) == [1, 2, 2]


def test_runs_that_do_not_fit_into_memory_together_are_archived_apart(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps that follow the limit, and down to one run; what does not fit alone is an error, and changes nothing."""
    for name in "abcde":
        workspace.add_run(name, {"q": {"hits_top_k": [{"rank": 1, "chunk_id": "c1"}]}})
    archive_step = archive_writer._Archiving._archive_step
    together: list[int] = []
    most = 2

    def of_a_few(work: archive_writer._Archiving, runs: Sequence[Run]) -> None:
        together.append(len(runs))
        if len(runs) > most:
            msg = "not enough memory"
            raise NotEnoughMemoryError(msg)
        archive_step(work, runs)

    monkeypatch.setattr(archive_writer._Archiving, "_archive_step", of_a_few)
    found = archive_writer.archive_runs(workspace.db, tmp_path / "history")
    assert (found.written, together) == (list("abcde"), [5, 2, 3, 1, 2])
    assert list(read_manifest(tmp_path / "history").runs) == list("abcde")
    # By the limit: a quarter of the usual rows. The runs have one row each.
    together.clear()
    monkeypatch.setattr(archive_writer, "STEP_ROWS", 8)
    archive_writer.archive_runs(workspace.db, tmp_path / "second", options=ReadOptions(memory_limit="100MB"))
    assert together == [2, 2, 1]
    most = 0
    with pytest.raises(NotEnoughMemoryError):
        archive_writer.archive_runs(workspace.db, tmp_path / "third")
    assert not (tmp_path / "third" / "manifest.json").exists()
    assert not list((tmp_path / "third").glob("draft-*"))
