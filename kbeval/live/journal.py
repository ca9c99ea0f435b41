"""Runs that are being made: each attempt is committed at once, and the whole run appears in one transaction at the end.

Everything goes through the process that has the database open. Attempts that arrive during a commit are collected, and
the next commit stores them together; the event loop is never blocked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
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
from kbeval.storage.unfinished import Unfinished, read_unfinished
from kbeval.util.files import check_target
from kbeval.util.locks import take_lock

# Another program may lock the database for a long time; an answer that was paid for is worth the wait.
_PATIENCE_MS = 300_000
_OF_RUN = "WHERE run_id = ? COLLATE BINARY"
_SCHEMAS = ("schema/kbeval_unfinished_runs.sql", "schema/kbeval_attempts.sql")


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
        # Attempts that are to be committed, and those that are being committed now.
        self._waiting: list[_Waiting] = []
        self._committing: list[_Waiting] = []
        self._is_scheduled = False
        # The event loop that watches for the answer to a commit, and the descriptor that it watches.
        self._watched: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._keeps_file = False

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
                self._keep_journal_file(self._database)
                with self._database.transaction():
                    self._prepare(is_empty=is_empty)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._settle()
        database, self._database = self._database, None
        if database is not None:
            if self._keeps_file:
                # Deletes the file, unless another process is writing right now; then an empty file remains.
                with contextlib.suppress(DatabaseError):
                    database.wait_at_most(1_000)
                    database.execute("PRAGMA journal_mode = DELETE")
            database.__exit__(kind, error, trace)

    def _keep_journal_file(self, database: Database) -> None:
        """Empty SQLite's journal file after a commit instead of deleting it: just as safe, and several times faster.

        That is a property of this connection, not of the database.
        """
        if database.execute("PRAGMA journal_mode").first() == ("delete",):
            database.execute("PRAGMA journal_mode = TRUNCATE")
            self._keeps_file = True

    @property
    def _open(self) -> Database:
        if self._database is None:
            msg = f"{self._path} is closed"
            raise DatabaseError(msg)
        self._settle()
        return self._database

    def _prepare(self, *, is_empty: bool) -> None:
        if is_empty:
            make_tables(self._open)
        known = {name for (name,) in self._open.execute("SELECT name FROM sqlite_master")}
        for table in ("eval_runs", "eval_query_results"):
            if table not in known:
                msg = f"{self._path} has no table {table}, where runs are stored; use another --db"
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
        """The id, with a number appended if it is taken."""
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
                what = "is unfinished: resume it, forget it, or" if taken[run_id] else "already exists;"
                msg = f"run {run_id!r} {what} choose another --run-id"
                raise UsageError(msg)

    def _taken(self) -> dict[str, bool]:
        with self._explained():
            done = self._open.execute("SELECT run_id FROM eval_runs")
            unfinished = self._open.execute("SELECT run_id FROM kbeval_unfinished_runs")
        return {**{str(name): False for (name,) in done}, **{str(name): True for (name,) in unfinished}}

    def is_complete(self, run_id: str) -> bool:
        """Is the run stored in `eval_runs`?"""
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
        """Store the whole run in `eval_runs` and `eval_query_results`."""
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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append(_Waiting(attempt, done, loop))
        if not self._committing and not self._is_scheduled:
            # Together with all others whose responses have already arrived.
            self._is_scheduled = True
            loop.call_soon(self._start_commit, loop)
        # An attempt that was made is stored even if the program no longer waits for it.
        await asyncio.shield(done)

    def _start_commit(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Send the collected attempts to the process. Without an event loop, `_settle` waits for the answer."""
        self._is_scheduled = False
        if self._database is None or self._committing or not self._waiting:
            return
        self._committing, self._waiting = self._waiting, []
        rows = [one.attempt.row() for one in self._committing]
        marks = ", ".join("?" * len(rows[0]))
        try:
            with self._explained():
                answer = self._database.start_write(f"INSERT INTO kbeval_attempts VALUES ({marks})", rows)
        except DatabaseError as error:
            self._finish(error)
            return
        if loop is not None:
            loop.add_reader(answer, self._go_on, loop)
            self._watched = loop, answer

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._finish_commit()
        self._start_commit(loop)

    def _finish_commit(self) -> None:
        if self._watched is not None:
            loop, answer = self._watched
            self._watched = None
            if not loop.is_closed():
                loop.remove_reader(answer)
        if self._database is None:
            return
        try:
            with self._explained():
                self._database.finish_write()
        except DatabaseError as error:
            self._finish(error)
        else:
            self._finish(None)

    def _finish(self, error: DatabaseError | None) -> None:
        done, self._committing = self._committing, []
        for one in done:
            one.finish(error)

    def _settle(self) -> None:
        """Commit all attempts that are waiting, before the database is used for anything else."""
        while self._committing or self._waiting:
            if self._committing:
                self._finish_commit()
            else:
                self._start_commit(None)


@dataclass(frozen=True)
class _Waiting:
    """An attempt that is not committed yet, and the future that waits for it."""

    attempt: StoredAttempt
    done: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop

    def finish(self, error: DatabaseError | None) -> None:
        if self.loop.is_closed() or self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def only_one(path: Path, run_id: str, doing: str = "made") -> Iterator[None]:
    """Lock a run while it is being made or judged: two processes would send every request twice."""
    name = hashlib.sha256(os.fsencode(real_path(path.absolute())) + b"\0" + run_id.encode("utf-8", "replace"))
    lock = Path(tempfile.gettempdir()) / f"kbeval-{doing}-{os.getuid()}-{name.hexdigest()[:24]}.lock"
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        yield
        return
    try:
        if take_lock(handle, exclusive=True) is False:
            msg = f"run {run_id!r} is being {doing} by another process right now; wait for it to finish"
            raise UsageError(msg)
        yield
        with contextlib.suppress(OSError):
            lock.unlink()
    finally:
        os.close(handle)
