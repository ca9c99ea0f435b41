"""Stamps: whether a database was written, told from the outside; WAL mode, and our own writes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kbeval.storage.write
from kbeval.database.connection import Database
from kbeval.storage.write import store_json
from tests.support.caching import (
    DIGESTS,
    HALF_DONE,
    NOTHING,
    RIGHT,
    WRONG,
    CachedWorkspace,
    changed_copy,
    holding_open,
    stamp_of,
    times_put_back,
    update,
    watching,
)


@pytest.fixture
def cached(tmp_path: Path) -> CachedWorkspace:
    return CachedWorkspace(tmp_path)


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "probe").open("w") as file:
        yield file.fileno()


# --- ticks ---------------------------------------------------------------------------------------------


def test_after_a_settled_stamp_every_write_has_another_time(tmp_path: Path, probe: int) -> None:
    """Written past SQLite, in place, at once: only the file system's clock can tell."""
    path = tmp_path / "file"
    with path.open("wb", buffering=0) as file, watching(path) as watch:
        for number in range(40):
            file.seek(200)
            file.write(b"a%d" % (number % 10))
            found = watch.stable_stamp(probe)
            file.seek(200)
            file.write(b"b%d" % (number % 10))
            assert found is not None
            assert watch.look() != found


def test_every_commit_shows_at_once_whatever_the_clock_says(cached: CachedWorkspace) -> None:
    for mode in ("DELETE", "WAL"):
        with closing(sqlite3.connect(cached.db, isolation_level=None)) as connection, watching(cached.db) as watch:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute("PRAGMA synchronous = OFF")
            seen = set()
            for number in range(60):
                connection.execute(*update(f"c{number % 10}"))
                found = watch.look()
                assert found is not None
                # Without the times: as if all was written in one tick.
                seen.add(found.contents)
            assert len(seen) == 60


def test_a_probe_on_another_file_system_proves_nothing(cached: CachedWorkspace, probe: int) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == cached.db.stat().st_dev:
        pytest.skip("there is only one file system here")
    with watching(cached.db) as watch, (shared / f"kbeval-probe-{os.getpid()}").open("w") as other:
        try:
            assert watch.stable_stamp(other.fileno()) is None
            assert watch.stable_stamp(probe) is not None
        finally:
            Path(other.name).unlink()


def test_the_clock_is_read_from_a_time_that_cannot_be_set(cached: CachedWorkspace, probe: int) -> None:
    """A file system that shows mtime as ctime would give back the time that was set."""
    with watching(cached.db) as watch:
        assert watch.stable_stamp(probe) is not None
    seen = os.fstat(probe)
    assert seen.st_mtime_ns < cached.db.stat().st_ctime_ns < seen.st_ctime_ns


# --- what is seen, and what is not a change ---------------------------------------------------------------


def test_reading_leaves_no_mark(cached: CachedWorkspace) -> None:
    for mode in ("DELETE", "WAL"):
        cached.execute(f"PRAGMA journal_mode = {mode}")
        before = stamp_of(cached.db)
        cached.execute("SELECT COUNT(*) FROM eval_query_results")
        cached.facts("off")
        assert stamp_of(cached.db) == before is not None


def test_a_transaction_that_is_rolled_back_changes_no_row(cached: CachedWorkspace) -> None:
    before = cached.settle()
    with holding_open(cached.db, "BEGIN") as writer:
        writer.execute(*update())
        assert cached.right() == before
        writer.execute("ROLLBACK")
        assert cached.right() == before
    assert cached.right() == before


def test_there_is_no_stamp_while_a_write_is_under_way(cached: CachedWorkspace) -> None:
    with holding_open(cached.db, *HALF_DONE) as writer:
        assert stamp_of(cached.db) is None
        writer.execute("ROLLBACK")
        assert stamp_of(cached.db) is not None


def test_looking_drops_no_lock_of_this_process(cached: CachedWorkspace) -> None:
    """Closing any file of a database drops all locks that the process has on it, SQLite's own among them."""
    for mode in ("DELETE", "WAL"):
        cached.execute(f"PRAGMA journal_mode = {mode}")
        with watching(cached.db) as watch, closing(sqlite3.connect(cached.db, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(*update())
            watch.look()
            with holding_open(cached.db, "PRAGMA busy_timeout = 1") as other:
                assert other.execute("BEGIN IMMEDIATE") == "database is locked"
            connection.execute("ROLLBACK")


def test_the_times_of_a_link_are_those_of_what_it_leads_to(cached: CachedWorkspace, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(cached.db)
    cached.execute("PRAGMA journal_mode = WAL")
    with holding_open(cached.db) as writer:
        writer.execute(*update())
        before = stamp_of(link)
        assert before == stamp_of(cached.db)
        writer.execute(*update(RIGHT))
        assert stamp_of(link) == stamp_of(cached.db) != before


# --- WAL mode --------------------------------------------------------------------------------------------


def test_commits_to_a_log_that_stays_open_are_seen(cached: CachedWorkspace) -> None:
    """The log is written over from its beginning again and again: its length stays, and so may its times."""
    cached.execute("PRAGMA journal_mode = WAL")
    before = cached.settle()
    log = Path(f"{cached.db}-wal")
    with holding_open(cached.db, "PRAGMA wal_autocheckpoint = 0") as writer:
        writer.execute(*update())
        first = cached.right()
        assert first != before
        assert cached.reads() == NOTHING
        for chunk_id, expected in ((RIGHT, before), (WRONG, first)):
            writer.execute("PRAGMA wal_checkpoint(RESTART)")
            assert cached.right() in (before, first)
            seen = log.stat()
            writer.execute(*update(chunk_id))
            times_put_back(log, seen)
            assert log.stat().st_size == seen.st_size
            assert cached.right() == expected
    assert cached.right() == first


@pytest.mark.parametrize("how", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_moving_the_log_into_the_database_changes_no_row(cached: CachedWorkspace, how: str) -> None:
    cached.execute("PRAGMA journal_mode = WAL")
    with holding_open(cached.db, "SELECT COUNT(*) FROM eval_runs"):
        cached.change()
        found = cached.settle()
        cached.execute(f"PRAGMA wal_checkpoint({how})")
        assert cached.right() == found
        assert cached.reads() == NOTHING


def test_a_commit_that_was_written_but_could_not_be_seen_yet_is_seen_later(
    cached: CachedWorkspace, tmp_path: Path
) -> None:
    """A writer writes the log first, waits for the disk, and then says so in the log's index, which has no time.

    Here it is killed in between, and the next to open the database finds what it wrote.
    """
    cached.execute("PRAGMA journal_mode = WAL")
    with holding_open(cached.db, "SELECT COUNT(*) FROM eval_runs") as reader:
        cached.change("c3", query="q2")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        for ending in ("", "-wal"):
            shutil.copy2(f"{cached.db}{ending}", f"{elsewhere / 'kb.db'}{ending}")
        with closing(sqlite3.connect(elsewhere / "kb.db", isolation_level=None)) as connection:
            connection.execute(*update())
            written = Path(f"{elsewhere / 'kb.db'}-wal").read_bytes()
        log = Path(f"{cached.db}-wal")
        length = log.stat().st_size
        assert written[:length] == log.read_bytes()
        with log.open("ab") as file:
            file.write(written[length:])
        before = cached.settle()
        reader.kill()
    assert cached.right() != before
    assert [cached.reads() for _ in range(2)] == [DIGESTS, NOTHING]


def test_a_log_left_by_a_killed_writer_is_read_once(cached: CachedWorkspace) -> None:
    cached.execute("PRAGMA journal_mode = WAL")
    before = cached.settle()
    change = f"UPDATE eval_query_results SET result_json = replace(result_json, '{RIGHT}', '{WRONG}')"
    with holding_open(cached.db, change):
        pass
    found = cached.right()
    assert found != before
    assert cached.reads() == NOTHING
    for ending in ("-wal", "-shm"):
        Path(f"{cached.db}{ending}").unlink()
    assert cached.right() == before


def test_what_is_written_while_scoring_is_seen_the_next_time(cached: CachedWorkspace) -> None:
    cached.execute("PRAGMA journal_mode = WAL")
    before = cached.numbers("off")
    steps: list[str] = []

    def write(step: str) -> None:
        if step == "building parsed":
            cached.change()
        steps.append(step)

    assert cached.numbers("on", on_step=write) == before
    assert "building parsed" in steps
    assert cached.numbers("on") == cached.numbers("off") != before


# --- our own writes ----------------------------------------------------------------------------------------


def store(cached: CachedWorkspace, text: str = "{}") -> None:
    store_json(cached.db, {"run1": text}, timeout_ms=5_000)


def others_write(cached: CachedWorkspace) -> None:
    """Another connection, in the same tick where it can."""
    with closing(sqlite3.connect(cached.db, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(*update())


@pytest.mark.parametrize("mode", ["DELETE", "PERSIST", "WAL"])
def test_storing_numbers_is_not_a_reason_to_read_rows_again(cached: CachedWorkspace, mode: str) -> None:
    cached.execute(f"PRAGMA journal_mode = {mode}")
    before = cached.settle()
    for number in range(3):
        store(cached, json.dumps({"number": number}))
        assert cached.reads() == NOTHING
    assert cached.right() == before
    if mode == "WAL":
        with holding_open(cached.db, "SELECT COUNT(*) FROM eval_runs"):
            store(cached)
            assert cached.reads() == NOTHING


def test_a_reader_of_the_log_is_not_waited_for(cached: CachedWorkspace) -> None:
    cached.execute("PRAGMA journal_mode = WAL")
    cached.settle()
    with holding_open(cached.db, "BEGIN", "SELECT COUNT(*) FROM eval_runs"):
        started = time.perf_counter()
        store(cached)
        assert time.perf_counter() - started < 2
        assert cached.stored("run1") == "{}"
        assert cached.reads() == NOTHING
    assert cached.right()


Moment = Callable[[pytest.MonkeyPatch, Callable[[], object]], None]


def before_the_lock(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    connect = Database.open

    def late(database: Database, mode: str = "ro", *arguments: Any) -> None:
        if mode == "rw":
            write()
        connect(database, mode, *arguments)

    monkeypatch.setattr(Database, "open", late)


def after_the_commit(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    empty = kbeval.storage.write._empty_log

    def late(connection: Database) -> None:
        write()
        empty(connection)

    monkeypatch.setattr(kbeval.storage.write, "_empty_log", late)


def at_the_very_end(monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
    ask = kbeval.storage.write._others_wrote
    calls: list[int] = []

    def late(connection: Database) -> int:
        calls.append(ask(connection))
        if len(calls) == 2:
            write()
        return calls[-1]

    monkeypatch.setattr(kbeval.storage.write, "_others_wrote", late)


@pytest.mark.parametrize("moment", [before_the_lock, after_the_commit, at_the_very_end], ids=lambda f: f.__name__)
@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_concurrent_writes_by_others_are_not_mistaken_for_ours(
    cached: CachedWorkspace,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    moment: Moment,
) -> None:
    cached.execute(f"PRAGMA journal_mode = {mode}")
    before = cached.settle()
    with monkeypatch.context() as patch:
        moment(patch, lambda: others_write(cached))
        store(cached)
    assert cached.stored("run1") == "{}"
    assert cached.right() != before


@pytest.mark.parametrize("moment", [before_the_lock, after_the_commit, at_the_very_end], ids=lambda f: f.__name__)
def test_a_database_replaced_around_our_storing_is_another_one(
    cached: CachedWorkspace,
    monkeypatch: pytest.MonkeyPatch,
    moment: Moment,
) -> None:
    """By a copy that has been written once more, as ours has: its own counters are what we expect of ours."""
    before = cached.settle()
    other = changed_copy(cached)
    with monkeypatch.context() as patch:
        moment(patch, lambda: other.replace(cached.db))
        store(cached)
    assert cached.right() != before


def test_a_lock_taken_just_after_we_stored_does_not_unsay_it(
    cached: CachedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cached.settle()
    with closing(sqlite3.connect(cached.db, isolation_level=None)) as other, monkeypatch.context() as patch:
        after_the_commit(patch, lambda: other.execute("BEGIN EXCLUSIVE"))
        store(cached)
        other.execute("ROLLBACK")
    assert cached.stored("run1") == "{}"
    assert cached.right() == before


def test_rows_that_a_trigger_changes_when_numbers_are_stored_are_read_again(cached: CachedWorkspace) -> None:
    cached.execute(
        "CREATE TRIGGER spread AFTER UPDATE ON eval_runs BEGIN"
        f" UPDATE eval_query_results SET result_json = replace(result_json, '{RIGHT}', '{WRONG}'); END"
    )
    before = cached.settle()
    store(cached)
    assert cached.right() != before


def test_storing_works_without_a_usable_cache_folder(cached: CachedWorkspace) -> None:
    cached.settle()
    (cached.folder / "rows.json").unlink()
    (cached.folder / "rows.json").mkdir()
    store(cached)
    assert cached.stored("run1") == "{}"
    shutil.rmtree(cached.folder)
    cached.folder.write_text("a file")
    store(cached, '{"a": 1}')
    assert cached.stored("run1") == '{"a": 1}'
    assert cached.right()


def test_a_name_too_long_for_a_cache_folder_is_not_an_error(tmp_path: Path) -> None:
    cached = CachedWorkspace(tmp_path, "k" * 244 + ".db")
    assert cached.right()
    store(cached)
    assert not cached.folder.parent.joinpath(cached.folder.name[:255]).exists()
    assert cached.reads() != DIGESTS
