from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import duckdb
import pytest

from kbeval.engine.session import SKIPPED_IF_SMALL, SMALL_BYTES, Session
from kbeval.errors import KbevalError, UsageError
from kbeval.storage.options import ReadOptions
from kbeval.storage.source import open_source
from tests.support.workspace import Workspace, hits


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "COPY (SELECT 1) TO 'out.csv'",
        "ATTACH 'other.db' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET temp_directory = '/tmp'",
        "SELECT * FROM secret",
    ],
)
def test_no_statement_reaches_files_the_network_or_the_calling_program(statement: str) -> None:
    secret = [("mine",)]  # a variable that replacement scans would find
    with Session() as session, pytest.raises(duckdb.Error):
        session.execute(statement)
    assert secret


def test_relations_are_built_when_they_are_needed_and_not_before(workspace: Workspace) -> None:
    from kbeval.storage.sqlite import SqliteSource

    workspace.add_run("run", {"q": {"hits_top_k": hits("c")}})
    steps: list[str] = []
    with Session(on_step=steps.append) as session, SqliteSource(workspace.db) as source:
        session.add_loaders(source.loaders(["run"]))
        session.need("runs")
        assert session.rows("SELECT run_id, chunker_version FROM runs") == [("run", "md@1")]
    assert steps == ["reading runs", "building runs"]


def test_an_unknown_relation_is_a_usage_error() -> None:
    with Session() as session, pytest.raises(UsageError, match="no relation 'hist'"):
        session.need("hist")


def test_what_was_spilled_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Session() as session:
        assert list(tmp_path.iterdir()) == []
        session.execute("SELECT 1")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_command_ends_without_waiting_for_memory_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """A session is released while the command goes on, and its folder is removed even if the command ends before."""
    code = """
        import sys, threading
        from kbeval.engine.session import Session
        from kbeval.util.ending import ENDING
        ENDING.is_with_command = sys.argv[1] == "command"
        discard, begun, released = Session._discard, threading.Event(), []
        def slowly(session):
            begun.set()
            # As if that took a minute.
            threading.Event().wait(60 if ENDING.is_with_command else 0.1)
            discard(session)
            released.append(session)
        Session._discard = slowly
        with Session(threads=1) as session:
            session.execute("SELECT 1")
        begun.wait()
        print(len(released), flush=True)
        ENDING.end(7)
    """
    for kind, released in (("program", "1"), ("command", "0")):
        command = [sys.executable, "-c", textwrap.dedent(code), kind]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=50, check=False)
        assert (done.returncode, done.stdout.strip()) == (7, released), done.stderr
        assert list(tmp_path.iterdir()) == []


def test_the_caller_goes_on_when_the_engine_is_at_work_or_has_failed(workspace: Workspace) -> None:
    workspace.add_run("run", {"q1": {"hits_top_k": hits("c1")}})
    events: list[str] = []
    with Session() as session, session.building():
        events.append("nothing to build")
    with open_source(workspace.db, ReadOptions()) as (session, source):
        source.feed(session, ["run"])
        with session.building("results"):
            # Its first statement is about to run.
            events.append(f"{'parsed' in session.built or 'stored_results' in session.built}")
        assert "results" in session.built
    failing = pytest.raises(UsageError, match="no relation")
    with Session() as session, failing, session.building("no_such_relation"):
        events.append("failed")
    assert events == ["nothing to build", "True", "failed"]


def test_only_small_databases_skip_passes_of_the_optimizer_and_never_those_that_bound_memory() -> None:
    def skipped(expected_bytes: int) -> set[str]:
        with Session(expected_bytes=expected_bytes) as session:
            ((names,),) = session.rows("SELECT current_setting('disabled_optimizers')")
        return set(filter(None, names.split(",")))

    assert skipped(SMALL_BYTES) == set(SKIPPED_IF_SMALL)
    assert skipped(SMALL_BYTES + 1) == skipped(0) == set()
    needed = {"join_order", "filter_pushdown", "build_side_probe_side", "unused_columns", "top_n", "limit_pushdown"}
    assert not needed & set(SKIPPED_IF_SMALL)


@pytest.mark.parametrize(
    ("threads", "size", "expected"),
    [(None, 1_000, 1), (2, 1_000, 2), (None, 100_000_000, None), (None, 0, None)],
)
def test_a_small_database_has_one_thread_unless_others_are_requested(
    threads: int | None, size: int, expected: int | None
) -> None:
    with duckdb.connect() as usual:
        ((processors,),) = usual.execute("SELECT current_setting('threads')").fetchall()
    with Session(threads=threads, expected_bytes=size, memory_limit="4GB") as session:
        assert session.rows("SELECT current_setting('threads')") == [(expected or min(processors, 80),)]


@pytest.mark.slow
def test_more_data_than_memory_spills_and_scores_the_same(workspace: Workspace) -> None:
    words = "the quick brown fox " * 40
    entries = [{"id": f"q{n}", "expected_chunk_ids": [f"c{n % 50}"], "must_contain": ["fox"]} for n in range(2000)]
    workspace.add_golden(*entries)
    for run in range(4):
        rows = {
            f"q{n}": json.dumps(
                {
                    "hits_top_k": [
                        {"rank": r, "chunk_id": f"c{(n + r * run) % 60}", "doc_id": f"d{r}" * 20} for r in range(1, 21)
                    ],
                    "answer": {"answer": words + str(n), "grounded": True, "citations": []},
                }
            )
            for n in range(2000)
        }
        workspace.add_run(f"run{run}", rows)
    roomy = workspace.score(memory_limit="2GB")
    tight = workspace.score(memory_limit="60MB")
    for run_id, aggregate in roomy.aggregates.items():
        assert tight.aggregates[run_id].to_json() == aggregate.to_json()


def test_only_what_a_dead_session_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Session() as living:
        living.execute("SELECT 1")
        (mine,) = tmp_path.iterdir()
        for name in ("kbeval-spill-dead", "kbeval-spill-young", "kbeval-spill-no-lock"):
            (tmp_path / name / "spilled").mkdir(parents=True)
            if name != "kbeval-spill-no-lock":
                (tmp_path / name / "lock").touch()
        (tmp_path / "kbeval-spill-link").symlink_to(tmp_path / "kbeval-spill-young")
        for name in (mine.name, "kbeval-spill-dead", "kbeval-spill-no-lock"):
            os.utime(tmp_path / name, (1, 1))
        with Session() as other:
            other.execute("SELECT 1")
        assert living.rows("SELECT 1") == [(1,)]
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {mine.name, "kbeval-spill-young", "kbeval-spill-no-lock", "kbeval-spill-link"}
    assert not mine.exists()


def test_an_engine_that_gives_up_for_good_is_one_line_with_advice() -> None:
    def give_up() -> None:
        msg = "FATAL Error: Failed: database has been invalidated because of a previous fatal error.\nmore"
        raise duckdb.FatalException(msg)

    with Session() as session, pytest.raises(KbevalError) as caught:
        session.waiting(give_up)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("try a higher --memory-limit")
