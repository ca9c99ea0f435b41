"""Everything that an answer is based on is read from one snapshot, while another process writes.

The writer moves all rows, numbers and configurations from one version to the next, one version per transaction. An
answer that contains two versions was read from a mixture.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kbeval
from kbeval.compare.gates import check_gates
from kbeval.explore.explorer import Explorer, open_explorer
from kbeval.scoring.attribution import recompute
from kbeval.storage.archive_writer import archive_runs
from kbeval.storage.options import ReadOptions
from kbeval.storage.source import one_snapshot, stored_runs
from tests.support.caching import OtherProcess, holding_open
from tests.support.examples import sized
from tests.support.workspace import Workspace, hits

# At least this many questions in each journal mode while another process writes, and this many tries of slow tasks.
QUESTIONS = 200
TRIES = sized(60, 200)
QUERIES = [f"q{number}" for number in range(40)]
MODES = ["DELETE", "WAL"]

KEEP_MOVING = """
    import json, sqlite3, sys, time
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    connection.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
    connection.execute("PRAGMA synchronous = OFF")
    # Pages are written as they are changed, not only at the end.
    connection.execute("PRAGMA cache_size = 4")
    version = 0
    while True:
        version += 1
        try:
            connection.execute("BEGIN IMMEDIATE")
            for run in ("a", "b"):
                hit = {"rank": 1, "chunk_id": f"c{version % 2}", "snippet": "y" * 300}
                row = {"elapsed_ms": version, "hits_top_k": [hit]}
                connection.execute(
                    "UPDATE eval_query_results SET result_json = ? WHERE run_id = ?", (json.dumps(row), run)
                )
                connection.execute(
                    "UPDATE eval_runs SET config_snapshot_json = ? WHERE run_id = ?",
                    (json.dumps({"chunker_version": "md@1", "version": version}), run),
                )
            connection.execute("COMMIT")
            # If no reader prevents it, the log starts over: what is read from it must be held.
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA busy_timeout = 30000")
        except sqlite3.OperationalError:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if version == 1:
            print("ready", flush=True)
        # Others must get a turn, too.
        time.sleep(0.01)
"""


@pytest.fixture
def moving(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    workspace.add_golden(*({"id": query, "expected_chunk_ids": ["c0"]} for query in QUERIES))
    for run in ("a", "b"):
        workspace.add_run(run, {query: {"hits_top_k": hits("c0"), "elapsed_ms": 0} for query in QUERIES})
    return workspace


@contextmanager
def being_written(workspace: Workspace, mode: str) -> Iterator[None]:
    code = textwrap.dedent(KEEP_MOVING)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(workspace.db), mode], stdout=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            yield
        finally:
            writer.kill()


VERSIONS = """
    SELECT COUNT(DISTINCT v) FROM (
        SELECT elapsed_ms AS v FROM results UNION ALL
        SELECT CAST(config ->> '$.version' AS DOUBLE) FROM runs
    )
"""


def ask(explorer: Explorer, sql: str) -> object:
    ((found,),) = explorer.query(sql).rows()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_questions_see_one_version(moving: Workspace, mode: str) -> None:
    """In new sessions, and as at the prompt: released and reopened, with a comparison in the same question."""
    options = kbeval.ScoreOptions(threads=1)
    # Both runs are as good as each other in every version, so a comparison that differs has read two.
    both = f"SELECT ({VERSIONS}) + (SELECT COUNT(*) FROM compare('a', 'b') WHERE kind <> 'draw')"
    seen = set()
    with being_written(moving, mode):
        for _ in range(QUESTIONS // 20):
            with kbeval.open_explorer(moving.db, moving.golden, options) as explorer:
                assert ask(explorer, both) == 1
                for _ in range(20):
                    explorer.release()
                    ((versions, which),) = explorer.query(f"SELECT ({VERSIONS}), MIN(elapsed_ms) FROM results").rows()
                    assert versions == 1
                    seen.add(which)
    assert len(seen) > QUESTIONS // 10


def write(other: OtherProcess, version: int) -> object:
    """All of it in one transaction, if possible; returns the outcome."""
    other.execute("BEGIN")
    rows, config = json.dumps({"elapsed_ms": version}), json.dumps({"version": version})
    assert other.execute("UPDATE eval_query_results SET result_json = ?", [rows]) == []
    assert other.execute("UPDATE eval_runs SET config_snapshot_json = ?", [config]) == []
    found = other.execute("COMMIT")
    if found != []:
        other.execute("ROLLBACK")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_after_a_question_was_taken_up_again_is_not_in_its_answer(moving: Workspace, mode: str) -> None:
    """As at the prompt: what was made for the last question is used, and the rest is read now."""
    mixed = 0
    with holding_open(moving.db, f"PRAGMA journal_mode = {mode}", "PRAGMA busy_timeout = 0") as other:
        for version in range(1, TRIES // 4 + 1):
            with kbeval.open_explorer(moving.db, moving.golden, kbeval.ScoreOptions(threads=1)) as explorer:
                ask(explorer, "SELECT COUNT(*) FROM runs")
                explorer.release()
                assert explorer.session is not None
                write(other, version)
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                mixed += ask(explorer, VERSIONS) != 1
            # Now that it is no longer being read.
            assert write(other, version) == []
    assert mixed == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_everything_that_compares_sees_one_version(moving: Workspace, mode: str) -> None:
    options = kbeval.ScoreOptions(threads=1)
    wrong: list[object] = []
    with being_written(moving, mode):
        for _ in range(sized(2, 6)):
            report = kbeval.compare_runs("a", "b", db=moving.db, golden=moving.golden)
            wrong += [report] if report.aggregate_a.numbers() != report.aggregate_b.numbers() else []
            gates = check_gates("b", {"baseline": "a", "max_drop": {"mrr": 0.0}}, db=moving.db, golden=moving.golden)
            wrong += [result for result in gates.results if not result.passed]
            found = recompute(moving.db, moving.golden, options).scored.aggregates
            wrong += [found] if found["a"].numbers() != found["b"].numbers() else []
    assert not wrong


@pytest.mark.parametrize("cache", ["off", "on"])
def test_what_is_opened_under_a_snapshot_reads_the_same_moment(moving: Workspace, cache: str) -> None:
    moving.execute("PRAGMA journal_mode = WAL")
    options = kbeval.ScoreOptions(cache=cache)
    before = kbeval.score_runs(moving.db, moving.golden, None, options).aggregates["a"].mrr
    with one_snapshot(moving.db, cache):
        moving.execute("UPDATE eval_query_results SET result_json = '{}'")
        assert kbeval.score_runs(moving.db, moving.golden, None, options).aggregates["a"].mrr == before == 1.0
        moving.execute("DELETE FROM eval_runs WHERE run_id = 'b'")
        assert [run.run_id for run in stored_runs(moving.db)] == ["a", "b"]
    assert kbeval.score_runs(moving.db, moving.golden, None, options).aggregates["a"].mrr == 0.0
    assert [run.run_id for run in stored_runs(moving.db)] == ["a"]


@pytest.mark.parametrize("mode", MODES)
def test_an_archive_holds_one_version_of_all_runs(
    moving: Workspace, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each run is a step of its own.
    monkeypatch.setattr("kbeval.storage.archive_writer.STEP_ROWS", 1)
    seen = set()
    with being_written(moving, mode):
        for place in range(5):
            archive_runs(moving.db, tmp_path / f"archive-{place}", options=ReadOptions(threads=1))
            time.sleep(0.05)
    for place in range(5):
        with open_explorer(tmp_path / f"archive-{place}") as explorer:
            assert ask(explorer, VERSIONS) == 1
            assert ask(explorer, "SELECT COUNT(*) FROM results") == 2 * len(QUERIES)
            seen.add(ask(explorer, "SELECT MAX(elapsed_ms) FROM results"))
    # The writer was not idle meanwhile.
    assert len(seen) > 1
