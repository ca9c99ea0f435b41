"""Runs that are being made: each attempt is committed at once, and the whole run appears in one transaction at the end.

Everything goes through the process that has the database open. A thread of its own writes what has gathered since the
last commit, so that many requests share one commit and none waits longer than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import queue
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbeval.database.connection import Database
from kbeval.database.holders import lock_holders
from kbeval.database.process import ProcessEndedError, SqliteError
from kbeval.engine.relations import read_sql
from kbeval.errors import DatabaseError, UsageError
from kbeval.storage.database_file import check_is_database, real_path
from kbeval.storage.new_database import make_tables
from kbeval.util.files import check_target
from kbeval.util.locks import take_lock
from kbeval.util.text import counted

# Another program may hold the database for long; an answer that was paid for is worth waiting.
_PATIENCE_MS = 300_000
_OF_RUN = "WHERE run_id = ? COLLATE BINARY"
_SCHEMAS = ("schema/kbeval_unfinished_runs.sql", "schema/kbeval_attempts.sql")


@dataclass(frozen=True)
class Unfinished:
    """A run that is not complete."""

    run_id: str
    suite: str
    config: Mapping[str, Any]
    plan: Mapping[str, Any]
    commit_hash: str | None
    started_at: str
    answered: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """How many queries it has."""
        return len(self.plan.get("queries", ()))


@dataclass(frozen=True)
class StoredAttempt:
    """A row of `kbeval_attempts`."""

    run_id: str
    query_id: str
    repetition: int
    attempt: int
    request_hash: str
    started_at: str
    elapsed_ms: float
    status: int | None
    error_kind: str | None
    error_message: str | None
    result_json: str

    def row(self) -> tuple[Any, ...]:
        """In the order of the columns."""
        return tuple(self.__dict__.values())


class Journal:
    """The unfinished runs of a database. Use as a context manager; creates the database if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None
        self._waiting: queue.SimpleQueue[tuple[StoredAttempt, Future[None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        is_new = not self._path.exists()
        is_empty = is_new or (self._path.is_file() and self._path.stat().st_size == 0)
        if is_empty:
            check_target(self._path)
        else:
            check_is_database(self._path)
        self._database = Database(self._path)
        try:
            with self._explained():
                if not is_empty:
                    self._database.check()
                self._database.open("rwc" if is_new else "rw", _PATIENCE_MS)
                with self._database.transaction():
                    self._prepare(is_empty=is_empty)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
        database, self._database = self._database, None
        if database is not None:
            database.__exit__(kind, error, trace)

    @property
    def _open(self) -> Database:
        if self._database is None:
            msg = f"{self._path} is closed"
            raise DatabaseError(msg)
        return self._database

    def _prepare(self, *, is_empty: bool) -> None:
        if is_empty:
            make_tables(self._open)
        known = {name for (name,) in self._open.execute("SELECT name FROM sqlite_master")}
        for table in ("eval_runs", "eval_query_results"):
            if table not in known:
                msg = f"{self._path} has no table {table}; a run is stored there: use another --db"
                raise DatabaseError(msg)
        for schema in _SCHEMAS:
            self._open.execute(read_sql(schema))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (SqliteError, ProcessEndedError) as error:
            holder = f" by {lock_holders(self._path)}" if isinstance(error, SqliteError) and error.is_locked else ""
            msg = f"{self._path} cannot be written: {error.headline}{holder}"
            raise DatabaseError(msg) from error

    # --- runs ---------------------------------------------------------------------------------------

    def free_id(self, wanted: str) -> str:
        """The id, or with a number behind it if it is taken."""
        taken = self._taken()
        found, number = wanted, 2
        while found in taken:
            found, number = f"{wanted}-{number}", number + 1
        return found

    def refuse_taken(self, run_ids: Sequence[str]) -> None:
        """Raise an error if one of these runs exists."""
        taken = self._taken()
        for run_id in run_ids:
            if run_id in taken:
                what = "is unfinished: resume it, or forget it" if taken[run_id] else "exists already"
                msg = f"run {run_id!r} {what}; choose another --run-id"
                raise UsageError(msg)

    def _taken(self) -> dict[str, bool]:
        with self._explained():
            done = self._open.execute("SELECT run_id FROM eval_runs")
            unfinished = self._open.execute("SELECT run_id FROM kbeval_unfinished_runs")
        return {**{str(name): False for (name,) in done}, **{str(name): True for (name,) in unfinished}}

    def is_complete(self, run_id: str) -> bool:
        """Is it stored as a run?"""
        return self._taken().get(run_id) is False

    def begin(self, runs: Sequence[Unfinished]) -> None:
        """Store runs that are about to be made."""
        rows = [
            (run.run_id, run.suite, _text(run.config), _text(run.plan), run.commit_hash, run.started_at) for run in runs
        ]
        with self._explained(), self._open.transaction():
            self._open.executemany("INSERT INTO kbeval_unfinished_runs VALUES (?, ?, ?, ?, ?, ?)", rows)

    def unfinished(self) -> list[Unfinished]:
        """All unfinished runs, oldest first."""
        with self._explained():
            return read_unfinished(self._open)

    def results(self, run_id: str) -> dict[str, tuple[int, bool, dict[str, Any]]]:
        """For each query that was asked: the number of attempts, whether it is answered, and its row."""
        found: dict[str, tuple[int, bool, dict[str, Any]]] = {}
        with self._explained():
            rows = self._open.execute(
                f"SELECT query_id, attempt, error_kind IS NULL, result_json FROM kbeval_attempts {_OF_RUN}"
                " ORDER BY query_id, attempt",
                (run_id,),
            )
        for query_id, attempt, is_answered, text in rows:
            if not found.get(query_id, (0, False))[1]:
                found[query_id] = attempt, bool(is_answered), json.loads(text)
        return found

    def complete(self, run: Unfinished, rows: Sequence[tuple[str, str]]) -> None:
        """The run appears in `eval_runs` and `eval_query_results`, whole."""
        with self._explained(), self._open.transaction():
            self._open.execute(
                "INSERT INTO eval_runs (run_id, suite, config_snapshot_json, aggregate_json, commit_hash, created_at)"
                " VALUES (?, ?, ?, '', ?, ?)",
                (run.run_id, run.suite, _text(run.config), run.commit_hash, run.started_at),
            )
            self._open.executemany(
                "INSERT INTO eval_query_results (run_id, query_id, result_json) VALUES (?, ?, ?)",
                ((run.run_id, query_id, text) for query_id, text in rows),
            )
            self._open.execute(f"UPDATE kbeval_attempts SET result_json = NULL {_OF_RUN}", (run.run_id,))
            self._open.execute(f"DELETE FROM kbeval_unfinished_runs {_OF_RUN}", (run.run_id,))

    def forget(self, run_id: str) -> None:
        """Delete an unfinished run with its attempts."""
        with self._explained(), self._open.transaction():
            self._open.execute(f"DELETE FROM kbeval_attempts {_OF_RUN}", (run_id,))
            self._open.execute(f"DELETE FROM kbeval_unfinished_runs {_OF_RUN}", (run_id,))

    # --- attempts -----------------------------------------------------------------------------------

    async def store(self, attempt: StoredAttempt) -> None:
        """Return once the attempt is committed."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="kbeval-journal", daemon=True)
            self._thread.start()
        done: Future[None] = Future()
        self._waiting.put((attempt, done))
        await asyncio.shield(asyncio.wrap_future(done))

    def _write(self) -> None:
        while (first := self._waiting.get()) is not None:
            gathered = [first]
            is_last = False
            with contextlib.suppress(queue.Empty):
                while not is_last:
                    more = self._waiting.get_nowait()
                    is_last = more is None
                    gathered += [] if more is None else [more]
            self._commit(gathered)
            if is_last:
                return

    def _commit(self, gathered: Sequence[tuple[StoredAttempt, Future[None]]]) -> None:
        rows = [attempt.row() for attempt, _ in gathered]
        try:
            with self._explained(), self._open.transaction():
                marks = ", ".join("?" * len(rows[0]))
                self._open.executemany(f"INSERT INTO kbeval_attempts VALUES ({marks})", rows)
        except BaseException as error:  # noqa: BLE001  (raised where the attempt was made)
            for _, done in gathered:
                done.set_exception(error)
        else:
            for _, done in gathered:
                done.set_result(None)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


def read_unfinished(database: Database) -> list[Unfinished]:
    """The unfinished runs of an open database, oldest first; none if it has no such table."""
    if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'kbeval_unfinished_runs'").first() is None:
        return []
    rows = database.execute(
        "SELECT u.run_id, u.suite, u.config_json, u.plan_json, u.commit_hash, u.started_at,"
        "       (SELECT COUNT(DISTINCT a.query_id) FROM kbeval_attempts AS a"
        "        WHERE a.run_id = u.run_id AND a.error_kind IS NULL),"
        "       (SELECT COUNT(DISTINCT a.query_id) FROM kbeval_attempts AS a WHERE a.run_id = u.run_id)"
        " FROM kbeval_unfinished_runs AS u ORDER BY u.started_at, u.rowid"
    )
    return [
        Unfinished(
            str(run_id),
            str(suite),
            json.loads(config),
            json.loads(plan),
            commit,
            str(started),
            answered,
            asked - answered,
        )
        for run_id, suite, config, plan, commit, started, answered, asked in rows
    ]


def unfinished_runs(path: Path) -> list[Unfinished]:
    """The unfinished runs of a database, without changing it."""
    if not path.is_file():
        return []
    with Database(path) as database:
        database.check()
        database.open("ro")
        return read_unfinished(database)


def find_unfinished(runs: Sequence[Unfinished], name: str, path: Path) -> Unfinished:
    """One by its id, a unique prefix, or `latest`."""
    if name == "latest" and runs:
        return runs[-1]
    exact = [run for run in runs if run.run_id == name]
    found = exact or [run for run in runs if run.run_id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        msg = f"{name!r} is ambiguous: {', '.join(run.run_id for run in found[:5])}"
    elif runs:
        many = counted(len(runs), "unfinished run")
        msg = f"{path} has no unfinished run {name!r}; it has {many}: {', '.join(run.run_id for run in runs[:5])}"
    else:
        msg = f"{path} has no unfinished runs"
    raise UsageError(msg)


@contextlib.contextmanager
def only_one(path: Path, run_id: str, doing: str = "made") -> Iterator[None]:
    """Hold a run as long as it is being made, or judged: two processes would send everything twice."""
    name = hashlib.sha256(os.fsencode(real_path(path.absolute())) + b"\0" + run_id.encode("utf-8", "replace"))
    lock = Path(tempfile.gettempdir()) / f"kbeval-{doing}-{os.getuid()}-{name.hexdigest()[:24]}.lock"
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        yield
        return
    try:
        if take_lock(handle, exclusive=True) is False:
            msg = f"run {run_id!r} is being {doing} by another process right now; wait for it to end"
            raise UsageError(msg)
        yield
        with contextlib.suppress(OSError):
            lock.unlink()
    finally:
        os.close(handle)
