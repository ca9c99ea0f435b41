"""Answers the requests of the other end."""

from __future__ import annotations

import itertools
import marshal
import os
import select
import sqlite3
import sys
import time

from .errors import described
from .files import Looker
from .rows import Arena, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these takes a third of the time to start
    from collections.abc import Callable
    from typing import Any

# SQLite instructions between two checks that the other end still waits for the answer: about a millisecond.
_PATIENCE = 50_000
# SQLite reads files up to this size through a memory map, which takes it a third less time. What is mapped counts as
# memory of this process. If another program truncates the file meanwhile, this process ends, and the other end reports
# that.
_MAPPED_BYTES = 256_000_000
_PAUSES_MS = (1, 2, 5, 10, 15, 20, 25, 25, 25, 50)


class Server:
    """Answers requests about one database at a time."""

    def __init__(self, channel: int, arena: int | None, parent: int) -> None:
        self._channel = channel
        self._parent = parent
        self._arena = Arena(arena)
        self._looker = Looker()
        self._connection: sqlite3.Connection | None = None
        self._timeout = 0.0
        self._streams: dict[int, Stream] = {}
        self._latest: Stream | None = None
        # Those that will be needed soon; they are read ahead when the latest one needs nothing.
        self._begun: list[Stream] = []
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    def serve(self) -> None:
        """Answer requests until the other end closes."""
        self._send(("hello", sys.hexversion))
        while True:
            stream = self._unread()
            if stream is not None and not self._poll.poll(0):
                stream.read_ahead()
                continue
            # If the other process was forked, its end may stay open elsewhere: also check the parent process.
            while not self._poll.poll(2_000):
                if self._is_alone():
                    return
            if (request := self._receive()) is None:
                return
            freed, dropped, name, *arguments = request
            self._arena.free(freed)
            for number in dropped:
                self._drop(number)
            try:
                answer = getattr(self, f"on_{name}")(*arguments)
            except Exception as error:  # noqa: BLE001  (reported to the other end)
                answer = described(error)
            self._send(answer)

    def _unread(self) -> Stream | None:
        """The stream of which more should be read ahead."""
        if self._latest is not None and self._latest.wants_more():
            return self._latest
        return next((stream for stream in self._begun if stream.is_wanted_soon()), None)

    def close(self) -> None:
        """Roll back uncommitted changes and release everything."""
        self._streams.clear()
        self._begun.clear()
        self._latest = None
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
        self._looker.close()

    # Requests. An answer begins with its type: ok, batch, end, or a kind of error.

    def on_look(self, path: bytes) -> tuple[Any, ...]:
        return ("ok", self._looker.look(path))

    def on_check(self, path: bytes) -> tuple[Any, ...]:
        self._looker.check(path)
        return ("ok", None)

    def on_open(self, path: bytes, uri: str, mode: str, timeout_ms: int) -> tuple[Any, ...]:
        """Open the database. For reading, the snapshot exists once this returns."""
        self._timeout = timeout_ms / 1000
        try:
            if mode == "ro":
                self._finish_interrupted_write(path, uri)
            self._connection = connection = sqlite3.connect(
                f"{uri}?mode={mode}", uri=True, timeout=0, isolation_level=None
            )
            # Text that is not UTF-8 is passed on unchanged.
            connection.text_factory = bytes
            connection.set_progress_handler(self._is_alone, _PATIENCE)
            # The text encoding is known only once the database has been read.
            ((encoding,),) = self._patiently(lambda: connection.execute("PRAGMA encoding").fetchall())
            if mode == "ro":
                size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
                ((length,),) = self._patiently(lambda: connection.execute(size).fetchall())
                if length <= _MAPPED_BYTES:
                    connection.execute(f"PRAGMA mmap_size = {_MAPPED_BYTES}")
                # One transaction for all reads, so that all tables are read from the same snapshot.
                connection.execute("BEGIN")
                self._patiently(lambda: connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchall())
        except BaseException:
            self.close()
            raise
        return ("ok", encoding)

    def _finish_interrupted_write(self, path: bytes, uri: str) -> None:
        """Roll back the journal of a writer that was killed. That needs write access, which a reader does not have."""
        try:
            if os.stat(os.path.realpath(path) + b"-journal").st_size == 0:
                return
            connection = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=0, isolation_level=None)
            try:
                self._patiently(lambda: connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone())
            finally:
                connection.close()
        except (OSError, sqlite3.Error):
            return  # no journal, or no permission to change it: reading will report that

    def on_close(self) -> tuple[Any, ...]:
        self.close()
        return ("ok", None)

    def on_execute(self, sql: str, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a statement. It is retried while the database is locked: SQLite has undone the failed attempt."""
        connection = self._open()

        def execute() -> tuple[list[str], list[tuple[Any, ...]], int]:
            cursor = connection.execute(sql, parameters)
            return [column[0] for column in cursor.description or ()], cursor.fetchall(), cursor.rowcount

        return ("ok", self._patiently(execute))

    def on_many(self, sql: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        self._open().executemany(sql, rows)
        return ("ok", None)

    def on_write(self, sql: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
        """Run a statement for each row of parameters, in a transaction of its own: all of them, or none."""
        connection = self._open()
        self._patiently(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            connection.executemany(sql, rows)
            self._patiently(lambda: connection.execute("COMMIT"))
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return ("ok", None)

    def on_timeout(self, timeout_ms: int) -> tuple[Any, ...]:
        self._timeout = timeout_ms / 1000
        return ("ok", None)

    def on_stream(self, number: int, sql: str, kinds: tuple[str, ...], rows: int) -> tuple[Any, ...]:
        stream = Stream(self._open().execute(sql), kinds, rows, self._arena)
        self._streams[number] = self._latest = stream
        return ("ok", None)

    def on_begin(self, number: int, sql: str, kinds: tuple[str, ...], rows: int) -> tuple[Any, ...]:
        """As a stream, to be read ahead while no other stream needs it."""
        stream = Stream(self._open().execute(sql), kinds, rows, self._arena)
        self._streams[number] = stream
        self._begun.append(stream)
        return ("ok", None)

    def on_next(self, number: int) -> tuple[Any, ...]:
        if number not in self._streams:
            return ("gone", "", "the database was closed while it was being read")
        self._latest = stream = self._streams[number]
        self._begun = [other for other in self._begun if other is not stream]
        found = stream.next()
        if found[0] != "batch":
            self._drop(number)
        return found

    def _drop(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        self._begun = [other for other in self._begun if other is not stream]
        if stream is self._latest:
            self._latest = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            msg = "the database is closed"
            raise sqlite3.ProgrammingError(msg)
        return self._connection

    def _patiently(self, task: Callable[[], Any]) -> Any:  # noqa: ANN401  (the task's result)
        """Retry while the database is locked, until the timeout or until the other end has closed."""
        deadline = time.monotonic() + self._timeout
        for attempt in itertools.count():
            try:
                return task()
            except sqlite3.OperationalError as error:
                is_busy = (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
                if not is_busy or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSES_MS[min(attempt, len(_PAUSES_MS) - 1)] / 1000)
            if self._is_alone():
                raise SystemExit
        return None

    # The other end.

    def _is_alone(self) -> bool:
        """Has the other end closed?"""
        found = self._poll.poll(0)
        gone = select.POLLHUP | select.POLLERR | select.POLLNVAL
        return bool(found and found[0][1] & gone) or os.getppid() != self._parent

    def _receive(self) -> Any:  # noqa: ANN401  (a request; None at the end)
        size = self._read(8)
        body = None if size is None else self._read(int.from_bytes(size, "little"))
        return None if body is None else marshal.loads(body)  # noqa: S302  (our own other end)

    def _read(self, size: int) -> bytes | None:
        pieces = []
        while size:
            piece = os.read(self._channel, min(size, 1 << 20))
            if not piece:
                return None
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _send(self, answer: tuple[Any, ...]) -> None:
        body = marshal.dumps(answer)
        view = memoryview(len(body).to_bytes(8, "little") + body)
        while view:
            view = view[os.write(self._channel, view) :]
