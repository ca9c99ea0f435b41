"""The columnar copy with several users: processes at once, many parts, random edits between scorings."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import kbeval.storage.cache
from kbeval.cli import run
from kbeval.explore.explorer import Explorer, open_explorer
from kbeval.scoring.options import ScoreOptions
from kbeval.storage.parts import read_part
from kbeval.storage.source import open_source
from kbeval.storage.write import store_json
from tests.support.caching import NOTHING, QUERIES, RIGHT, WRONG, CachedWorkspace, remake, row, times_put_back
from tests.support.examples import scorings, sized


@pytest.fixture
def cached(tmp_path: Path) -> CachedWorkspace:
    return CachedWorkspace(tmp_path)


COMMAND = [sys.executable, "-m", "kbeval"]


def scoring(cached: CachedWorkspace, *more: str) -> list[str]:
    base = [*COMMAND, "score", "--all", "--format", "json", "--force"]
    return [*base, "--db", str(cached.db), "--golden", str(cached.golden), *more]


# --- processes at once ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_several_processes_at_once_do_no_harm(
    cached: CachedWorkspace, mode: str, capfd: pytest.CaptureFixture[str]
) -> None:
    cached.execute(f"PRAGMA journal_mode = {mode}")
    for number in range(sized(2, 3)):
        cached.change(f"c{number}", query=QUERIES[number])
        if number == 1:
            remake(cached, "run2", {"q1": row(WRONG)})
        command = scoring(cached, "--cache", "on")
        together = [
            subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for more in ([], [], ["--dry-run"])
        ]
        found = [process.communicate() for process in together]
        capfd.readouterr()
        assert run(scoring(cached, "--cache", "off")[len(COMMAND) :]) == 0
        plain = capfd.readouterr().out
        assert [process.returncode for process in together] == [0, 0, 0], found
        assert [output for output, _ in found] == [plain] * 3
    assert cached.right()
    assert cached.reads() == NOTHING
    assert not list(cached.folder.glob("draft-*"))
    assert all(read_part(part) is not None for part in cached.parts())
    assert cached.execute("PRAGMA integrity_check") == [("ok",)]


DIE_WHILE_KEEPING = """
    import os, signal, sys
    import kbeval.storage.cache as cache
    from kbeval.scoring.aggregate import score_runs
    from kbeval.scoring.options import ScoreOptions
    write = cache.write_relation
    def write_and_die(session, sql, path, compression):
        write(session, sql, path, compression)
        if path.name == "hits.parquet":
            os.kill(os.getpid(), signal.SIGKILL)
    cache.write_relation = write_and_die
    score_runs(sys.argv[1], sys.argv[2], None, ScoreOptions(cache="on"))
"""


def test_a_process_killed_while_it_keeps_rows_leaves_no_half_copy(cached: CachedWorkspace) -> None:
    command = [sys.executable, "-c", textwrap.dedent(DIE_WHILE_KEEPING), str(cached.db), str(cached.golden)]
    assert subprocess.run(command, check=False).returncode < 0
    assert list(cached.folder.glob("draft-*"))
    assert cached.right()
    assert cached.reads() == NOTHING
    assert not list(cached.folder.glob("draft-*"))


def test_files_that_another_process_reads_are_not_deleted(cached: CachedWorkspace) -> None:
    cached.execute("PRAGMA journal_mode = WAL")
    cached.settle()
    (old,) = cached.parts()
    everything = "SELECT COUNT(*), MIN(chunk_id) FROM hits"
    with open_source(cached.db, ScoreOptions(cache="on")) as (session, source):
        source.feed(session, [run.run_id for run in source.runs()])
        session.need("hits")
        before = session.rows(everything)
        code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"
        change = f"UPDATE eval_query_results SET result_json = replace(result_json, '{RIGHT}', '{WRONG}')"
        subprocess.run([sys.executable, "-c", code, str(cached.db), change], check=True)
        subprocess.run(scoring(cached, "--cache", "on", "--dry-run"), check=True, capture_output=True)
        assert len(cached.parts()) == 2
        assert session.rows(everything) == before
    assert cached.right()
    assert old not in cached.parts()
    assert cached.reads() == NOTHING


# --- many parts ------------------------------------------------------------------------------------------


def test_many_parts_are_made_one(cached: CachedWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kbeval.storage.cache, "MOST_PARTS", 3)
    cached.facts("on", "hit_claims")
    counts = []
    for number in range(4, 9):
        cached.add_run(f"run{number}", {"q1": row(f"c{number}"), "q2": "broken"})
        cached.facts("on")
        counts.append(len(cached.parts()))
    assert max(counts) <= 3
    assert min(counts) < max(counts)
    assert cached.right()
    assert cached.reads() == NOTHING
    # What only some runs had is kept for those.
    found = [part for folder in cached.parts() if (part := read_part(folder)) is not None]
    assert {run_id for part in found if "hit_claims" in part.files for run_id in part.runs} == {"run1", "run2", "run3"}
    assert cached.facts("on", "hit_claims").text == cached.facts("off", "hit_claims").text
    assert cached.reads("hit_claims") == NOTHING


def test_parts_of_runs_that_are_gone_or_changed_are_deleted(cached: CachedWorkspace) -> None:
    cached.settle()
    (old,) = cached.parts()
    for number in (1, 2):
        cached.execute("DELETE FROM eval_query_results WHERE run_id = ?", (f"run{number}",))
        cached.execute("DELETE FROM eval_runs WHERE run_id = ?", (f"run{number}",))
    cached.change(run="run3")
    cached.facts("on")
    assert old not in cached.parts()
    assert len(cached.parts()) == 1
    assert set(json.loads((cached.folder / "rows.json").read_text())["runs"]) == {"run3"}
    assert cached.right()


def test_the_same_rows_parsed_twice_are_kept_once(cached: CachedWorkspace) -> None:
    """As left by two processes that started together."""
    cached.settle()
    cached.folder.rename(cached.folder.with_name("first"))
    cached.settle()
    for part in cached.folder.with_name("first").glob("part-*"):
        shutil.copytree(part, cached.folder / part.name)
    assert len(cached.parts()) == 2
    assert cached.right()
    assert len(cached.parts()) == 1


# --- anything, in any order ------------------------------------------------------------------------------

RUNS = st.sampled_from(["run1", "run2"])
CHUNKS = st.sampled_from([RIGHT, WRONG, "c3"])
ASKED = st.sampled_from(QUERIES)


class Edits(RuleBasedStateMachine):
    """Edits a database in all ways; after each the copy gives what the rows give, to two users of it."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.cached = CachedWorkspace(self._folder)
        self.backup = self._folder / "backup.db"
        self.explorer: Explorer | None = None

    @initialize(mode=st.sampled_from(["DELETE", "WAL"]))
    def begin(self, mode: str) -> None:
        self.cached.execute(f"PRAGMA journal_mode = {mode}")
        self.back_up()
        self.cached.facts("on")

    def back_up(self) -> None:
        self.backup.unlink(missing_ok=True)
        self.cached.execute("VACUUM INTO ?", (str(self.backup),))

    @rule(run=RUNS, query=ASKED, chunk=CHUNKS)
    def update(self, run: str, query: str, chunk: str) -> None:
        seen = self.cached.db.stat()
        self.cached.change(chunk, run, query)
        times_put_back(self.cached.db, seen)
        self.check()

    @rule(run=RUNS, chunk=CHUNKS)
    def make_again(self, run: str, chunk: str) -> None:
        remake(self.cached, run, dict.fromkeys(QUERIES, row(chunk)))
        self.check()

    @rule(one=ASKED, other=ASKED)
    def swap(self, one: str, other: str) -> None:
        for old, new in ((one, "x"), (other, one), ("x", other)):
            self.cached.execute("UPDATE OR REPLACE eval_query_results SET query_id = ? WHERE query_id = ?", (new, old))
        self.check()

    @rule(run=RUNS, query=ASKED)
    def delete(self, run: str, query: str) -> None:
        self.cached.execute("DELETE FROM eval_query_results WHERE run_id = ? AND query_id = ?", (run, query))
        self.check()

    @rule()
    def vacuum(self) -> None:
        self.cached.execute("VACUUM")
        self.check()

    @rule(mode=st.sampled_from(["DELETE", "PERSIST", "MEMORY", "WAL"]))
    def switch(self, mode: str) -> None:
        self.cached.execute(f"PRAGMA journal_mode = {mode}")
        self.check()

    @rule()
    def keep_backup(self) -> None:
        self.back_up()

    @rule(in_place=st.booleans())
    def put_back(self, in_place: bool) -> None:
        if Path(f"{self.cached.db}-wal").exists():
            self.cached.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if in_place:
            seen = self.cached.db.stat()
            shutil.copyfile(self.backup, self.cached.db)
            times_put_back(self.cached.db, seen)
        else:
            shutil.copy2(self.backup, self._folder / "new.db")
            (self._folder / "new.db").replace(self.cached.db)
        for ending in ("-wal", "-shm"):
            Path(f"{self.cached.db}{ending}").unlink(missing_ok=True)
        self.check()

    @rule(run=RUNS)
    def store(self, run: str) -> None:
        store_json(self.cached.db, {run: "{}"})
        self.check()

    @rule(place=st.integers(0, 200))
    def break_copy(self, place: int) -> None:
        paths = sorted(path for path in self.cached.folder.rglob("*") if path.is_file() and path.stat().st_size)
        path = paths[place % len(paths)]
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 255
        path.write_bytes(content)
        self.check()

    @precondition(lambda self: self.explorer is None)
    @rule()
    def come(self) -> None:
        options = ScoreOptions(cache="on", threads=1)
        self.explorer = self._stack.enter_context(open_explorer(self.cached.db, self.cached.golden, options))
        self.check()

    def check(self) -> None:
        # The other user first: it must not hand on what it knew before.
        if self.explorer is not None:
            question = "SELECT run_id, query_id, chunk_id, rank FROM hits JOIN results USING (result_no) ORDER BY ALL"
            answers = [self.explorer.query(question).rows()]
            self.explorer.release()
            with open_explorer(self.cached.db, None, ScoreOptions(cache="off", threads=1)) as plain:
                answers.append(plain.query(question).rows())
            assert answers[0] == answers[1]
        self.cached.right()

    def teardown(self) -> None:
        self._stack.close()


@pytest.mark.slow
def test_after_any_edits_in_any_order_the_copy_gives_what_the_rows_give() -> None:
    run_state_machine_as_test(Edits, settings=scorings(2, stateful_step_count=12))


def test_edits_past_the_log_of_an_open_writer_are_seen_by_both_users(cached: CachedWorkspace) -> None:
    cached.execute("PRAGMA journal_mode = WAL")
    cached.settle()
    with open_explorer(cached.db, cached.golden, ScoreOptions(cache="on")) as explorer:
        for chunk_id in (WRONG, RIGHT, WRONG):
            found = explorer.query("SELECT COUNT(*) FROM hits WHERE chunk_id = 'c1'").rows()
            explorer.release()
            cached.change(chunk_id)
            now = explorer.query("SELECT COUNT(*) FROM hits WHERE chunk_id = 'c1'").rows()
            explorer.release()
            assert now != found
            cached.right()
    with closing(sqlite3.connect(cached.db)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
